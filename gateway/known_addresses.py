"""The addresses that have logged in to an instance lately, for all workers to see.

One shared table of fixed size: where two fall into one row the later one stays. Each row is one
number that is written at once, so nothing has to be locked.
"""

import hashlib
import mmap
import secrets
import time

ROWS = 262_144
ROW_BYTES = 8
LASTS_S = 24 * 3600.0
MINUTE_S = 60.0
# Of a row: who, and in which minute. The rest of the digest says which row.
MINUTE_BITS = 24


class KnownAddresses:
    """Made by the parent before it forks."""

    def __init__(self) -> None:
        # Nobody can choose whom they drive out.
        self._key = secrets.token_bytes(16)
        self._rows = memoryview(mmap.mmap(-1, ROWS * ROW_BYTES)).cast("Q")

    def add(self, place: str, customer: str) -> None:
        row, who = self._find(place, customer)
        self._rows[row] = who << MINUTE_BITS | _minute()

    def has(self, place: str, customer: str) -> bool:
        row, who = self._find(place, customer)
        found = self._rows[row]
        since = _minute() - found % (1 << MINUTE_BITS)
        return found >> MINUTE_BITS == who and 0 <= since * MINUTE_S < LASTS_S

    def _find(self, place: str, customer: str) -> tuple[int, int]:
        named = f"{place} {customer}".encode()
        digest = hashlib.blake2b(named, digest_size=16, key=self._key).digest()
        row = int.from_bytes(digest[:8], "big") % ROWS
        return row, int.from_bytes(digest[8:], "big") >> MINUTE_BITS


def _minute() -> int:
    """Since this machine started: a clock that is set changes nothing."""
    return int(time.monotonic() / MINUTE_S)
