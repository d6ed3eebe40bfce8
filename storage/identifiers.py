"""Identifiers: a type prefix and a ULID, ascending within a process even inside one millisecond."""

import hashlib
import threading
from datetime import datetime

from ulid import ULID

_lock = threading.Lock()
_last = 0


def new(prefix: str) -> str:
    """A new id such as `inst_01JD…`; later calls sort after earlier ones, so lists keep order."""
    global _last  # noqa: PLW0603 - the last id handed out is the process's own state
    with _lock:
        _last = max(int(ULID()), _last + 1)
        return prefix + str(ULID.from_int(_last))


def derived(prefix: str, text: str) -> str:
    """The same id for the same text; it tells no time."""
    return prefix + str(ULID.from_bytes(hashlib.sha256(text.encode()).digest()[:16]))


def time_of(made: str) -> datetime | None:
    """When it was made; None where it is no id."""
    try:
        found: datetime = ULID.from_str(made.rpartition("_")[2]).datetime
    except ValueError:
        return None
    return found


def first_of(prefix: str, moment: datetime) -> str:
    """No id made at that moment or later sorts before this one."""
    milliseconds = max(0, int(moment.timestamp() * 1000))  # what was before 1970 made none
    return prefix + str(ULID.from_bytes(milliseconds.to_bytes(6) + bytes(10)))
