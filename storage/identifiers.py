"""Identifiers: a type prefix and a ULID, ascending within a process even inside one millisecond."""

import threading

from ulid import ULID

_lock = threading.Lock()
_last = 0


def new(prefix: str) -> str:
    """A new id such as `inst_01JD…`; later calls sort after earlier ones, so lists keep order."""
    global _last  # noqa: PLW0603 - the last id handed out is the process's own state
    with _lock:
        _last = max(int(ULID()), _last + 1)
        return prefix + str(ULID.from_int(_last))
