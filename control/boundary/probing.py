"""API keys that are tried at everything: whoever holds one does not know what it is for.

A program calls what it was made for, again and again, also where its key lacks a permission. A
stolen key is tried at many operations to see what it opens. Where it is refused at so many in a
short time, it is suspended until a person says that it was no thief. Counted in this process, and
only what is refused: requests that are let in cost nothing.
"""

import threading
import time
from collections import OrderedDict
from collections.abc import Callable
from typing import Final

import structlog

from control.boundary.callers import Caller
from control.services import Services
from control.workflows.access import key_suspensions
from specserver import Exchange, Problem

OPERATIONS_MAX: Final = 20
"""Different ones, at which a key lacked the permission."""
WITHIN_S: Final = 600.0
_KEYS_MAX: Final = 10_000
_log = structlog.get_logger(__name__)


class ProbingWatch:
    """Refusals of API keys, those refused last at the end; safe to share between threads."""

    def __init__(self, services: Services, clock: Callable[[], float] = time.monotonic) -> None:
        self._services = services
        self._clock = clock
        self._refused: OrderedDict[str, dict[str, float]] = OrderedDict()
        self._lock = threading.Lock()

    def note(self, exchange: Exchange, problem: Problem) -> None:
        """Suspends the key of a caller who lacked the permission once too often."""
        caller: Caller | None = exchange.principal
        if caller is None or caller.key is None or problem.code != "permission_missing":
            return
        if not self._services.settings.rate_limits:
            return
        if self._count(caller.key.id, exchange.operation.id) < OPERATIONS_MAX:
            return
        with self._lock:
            self._refused.pop(caller.key.id, None)
        with self._services.database.write() as db:
            if key_suspensions.probing(db, self._services, caller.key.id, exchange.request_id):
                _log.warning(
                    "an API key was suspended: it was tried at many operations",
                    key_id=caller.key.id,
                )

    def _count(self, key_id: str, operation_id: str) -> int:
        now = self._clock()
        with self._lock:
            seen = self._refused.pop(key_id, {})
            if len(self._refused) >= _KEYS_MAX:
                self._refused.popitem(last=False)
            recent = {one: at for one, at in seen.items() if at > now - WITHIN_S}
            self._refused[key_id] = {**recent, operation_id: now}
            return len(self._refused[key_id])
