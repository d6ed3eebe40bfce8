"""Owns how many views and macros there may be, and their check at each start.

Each start reads them all, since earlier rules may have let in what is refused now. So their text
is bounded where they are made, and a check that still takes too long goes on with later requests.
"""

import re
import time
from collections.abc import Callable
from typing import Any

import structlog

from instance_services.duckdb import catalog
from instance_services.duckdb.tokens import words

log = structlog.get_logger()

TEXT_BYTES_MAX = 8 * 2**20
# Of the process's CPU. A start has less than fifteen minutes; a request waits for its answer.
START_S = 60.0
REQUEST_S = 5.0
# The engine keeps a text in words of its own, which are longer: counted exactly before a refusal.
_GROWTH = 8
_MADE = frozenset({"function", "macro", "view"})
_MAY_MAKE = re.compile(r"\b(?:function|macro|view)\b", re.IGNORECASE)
_LEFT = (
    "the {kind} {name} uses something that is not supported, and it could not be dropped when the"
    " instance started; until you DROP it, no other statement is run"
)
_UNREAD = (
    "the views and macros of this database cannot be read to check them; until those that cause"
    " this are dropped with DROP, no other statement is run"
)
_UNFINISHED = (
    "{count} views and macros, among them {name}, have not been checked yet since the instance"
    " started; each request checks some more, so try again, or DROP those that you do not need"
)
_TOO_MANY = (
    f"views and macros can have at most {TEXT_BYTES_MAX} bytes of SQL in total, in the form in"
    " which the engine stores it; DROP some first"
)


class Stored:
    """The views and macros of one connection; on its thread."""

    def __init__(self, connection: Any, is_refused: Callable[[catalog.StoredObject], bool]) -> None:
        self._connection = connection
        self._is_refused = is_refused
        # Why nothing is run for now but what mends that.
        self.blocked: str | None = None
        self._checked: set[catalog.StoredObject] = set()
        self._bytes_at_most = 0

    def check(self, for_s: float) -> None:
        """Drops those that use what is refused: they were let in by earlier rules.

        It never raises, as the instance could not be started then: where one is left, nothing is
        run but what drops it.
        """
        self.blocked = None
        try:
            self._check_each(time.process_time() + for_s)
        except Exception as error:  # noqa: BLE001 - whatever it is, the instance must start
            self.blocked = self.blocked or _UNREAD
            log.error("views and macros cannot be checked", why=self.blocked, reason=repr(error))  # noqa: TRY400 - one line

    def _check_each(self, until: float) -> None:
        found = catalog.stored(self._connection)
        self._bytes_at_most = _size(found)
        left = [each for each in found if each not in self._checked]
        for place, each in enumerate(left):
            if time.process_time() >= until:
                self.blocked = _UNFINISHED.format(count=len(left) - place, name=each.quoted)
                log.warning("views and macros are not checked yet", left=len(left) - place)
                return
            if self._is_refused(each):
                self.blocked = _LEFT.format(kind=each.kind, name=each.quoted)
                catalog.drop(self._connection, each)
                self.blocked = None
                log.warning("dropped: it uses something that is not supported", name=each.quoted)
            self._checked.add(each)
        self._checked.clear()

    def why_full(self, sql: str) -> str | None:
        """Why a text may not be run that makes more of them; to be called before each text."""
        if not _MAY_MAKE.search(sql):
            return None
        self._bytes_at_most += len(sql.encode()) * _GROWTH
        if self._bytes_at_most <= TEXT_BYTES_MAX:
            return None
        kept = _size(catalog.stored(self._connection))
        self._bytes_at_most = kept + len(sql.encode()) * _GROWTH
        if kept + len(sql.encode()) <= TEXT_BYTES_MAX:
            return None
        said = {word.lower() for word in words(sql)}
        return _TOO_MANY if "create" in said and said & _MADE else None


def _size(found: list[catalog.StoredObject]) -> int:
    return sum(len(each.sql.encode()) for each in found)
