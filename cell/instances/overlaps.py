"""Tells engines later of what they could not be told at once, and ends those that never can be."""

import signal
import time
from collections.abc import Awaitable, Callable

import structlog

from cell.access.credentials import Credentials
from cell.engines.driver import EngineError, NewLoginError
from cell.instances import login_turns
from cell.instances.hosted import HostedInstance

log = structlog.get_logger("cell.overlaps")

# From the first attempt that failed; then the engine is started anew, with what is valid.
WITHIN_S = 60.0


class Overlaps:
    """`hand_out` tells an engine of what is valid now, within the instance's lock."""

    def __init__(
        self, credentials: Credentials, hand_out: Callable[[HostedInstance], Awaitable[None]]
    ) -> None:
        self._credentials = credentials
        self._hand_out = hand_out
        self._ending: set[str] = set()
        self._owed: set[str] = set()
        self._failing_since: dict[str, float] = {}

    def owe(self, instance_id: str) -> None:
        """Its rotation failed: the credential is there, and the engine does not know it."""
        self._owed.add(instance_id)

    def due(self) -> set[str]:
        """The instances for which `end` is to be called now, apart from one another."""
        found = ({*self._credentials.expired()} | self._owed) - self._ending
        self._ending |= found
        return found

    async def end(self, instance_id: str, instance: HostedInstance | None) -> None:
        """Tried again at a later tick where the engine cannot be told now."""
        told_at = time.time()
        try:
            if instance is not None:
                # Not beside a rotation: engines refuse two changes of one login at once.
                async with login_turns.locked(instance):
                    told_at = time.time()
                    if instance.record.desired != "erased":
                        await self._tell(instance)
            # Forgotten once the engine knows, and not before: else it would never be told. What has
            # expired since then is told next.
            self._credentials.forget_expired(instance_id, told_at)
            self._owed.discard(instance_id)
            self._failing_since.pop(instance_id, None)
        except (EngineError, OSError) as error:
            log.warning("cell.not_told", instance_id=instance_id, reason=str(error))
        finally:
            self._ending.discard(instance_id)

    async def _tell(self, instance: HostedInstance) -> None:
        try:
            await self._hand_out(instance)
        except NewLoginError:
            # Nobody could get in then.
            raise
        except (EngineError, OSError) as error:
            self._end_late(instance, error)
            raise
        log.info("cell.credential_ended", instance_id=instance.instance_id)

    def _end_late(self, instance: HostedInstance, error: Exception) -> None:
        """Whatever the reason: a credential has no effect on an engine that does not run."""
        now = time.monotonic()
        since = self._failing_since.setdefault(instance.instance_id, now)
        if now - since < WITHIN_S or instance.process is None:
            return
        self._failing_since.pop(instance.instance_id)
        reason = f"it could not be told that a credential has ended: {error}"
        instance.expect_end(reason)
        log.warning("cell.engine_cut", instance_id=instance.instance_id, reason=reason)
        instance.process.signal(signal.SIGKILL)
