"""Tells engines later of what they could not be told at once, and ends those that never can be."""

import signal
import time
from collections.abc import Awaitable, Callable

import structlog

from cell.access.credentials import Credentials
from cell.engines.driver import EngineError, NewLoginError
from cell.instances.residents import Resident

log = structlog.get_logger("cell.overlaps")

# From the first attempt that failed; then the engine is started anew, with what is valid.
WITHIN_S = 60.0


class Overlaps:
    """`hand_out` tells an engine of what is valid now, within the instance's lock."""

    def __init__(
        self, credentials: Credentials, hand_out: Callable[[Resident], Awaitable[None]]
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

    async def end(self, instance_id: str, resident: Resident | None) -> None:
        """Tried again at a later tick where the engine cannot be told now."""
        try:
            if resident is not None:
                # Not beside a rotation: engines refuse two changes of one login at once.
                async with resident.lock:
                    if resident.record.desired != "erased":
                        await self._tell(resident)
            # Forgotten once the engine knows, and not before: else it would never be told.
            self._credentials.forget_expired(instance_id)
            self._owed.discard(instance_id)
            self._failing_since.pop(instance_id, None)
        except (EngineError, OSError) as error:
            log.warning("cell.not_told", instance_id=instance_id, reason=str(error))
        finally:
            self._ending.discard(instance_id)

    async def _tell(self, resident: Resident) -> None:
        try:
            await self._hand_out(resident)
        except NewLoginError:
            # Nobody could get in then.
            raise
        except (EngineError, OSError) as error:
            self._end_late(resident, error)
            raise
        log.info("cell.credential_ended", instance_id=resident.instance_id)

    def _end_late(self, resident: Resident, error: Exception) -> None:
        """Whatever the reason: a credential has no effect on an engine that does not run."""
        now = time.monotonic()
        since = self._failing_since.setdefault(resident.instance_id, now)
        if now - since < WITHIN_S or resident.process is None:
            return
        self._failing_since.pop(resident.instance_id)
        reason = f"it could not be told that a credential ended: {error}"
        resident.expect_end(reason)
        log.warning("cell.engine_cut", instance_id=resident.instance_id, reason=reason)
        resident.process.signal(signal.SIGKILL)
