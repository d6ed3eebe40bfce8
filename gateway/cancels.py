"""The keys of running PostgreSQL sessions, so that a cancel request finds its backend.

A client's cancel comes on a connection of its own, which any worker may get, and often says no
more than a process id and a secret. So each session is given a secret of ours, and one table that
all workers share says which backend it stands for. A worker writes only its own part of the table
and reads all of them, so nothing is locked; the parent clears the part of a worker that died.
"""

import hmac
import mmap
import os
import struct
from dataclasses import dataclass

# Twice the connections a worker takes at most, so that a place is found within a few steps.
ROWS = 16_384
STEPS_MAX = 64
# Key, our secret, the instance, and the backend's process id and secret, each with its length.
ROW = struct.Struct("<QB32sB64sIH256s")
ROW_BYTES = 384
KEY = struct.Struct("<Q")
SHORT_BYTES, LONG_BYTES = 4, 32


@dataclass(frozen=True, slots=True)
class BackendSession:
    """What the backend of a session told it."""

    instance_id: str
    pid: int
    secret: bytes


class Cancels:
    """Made by the parent before it forks; `column` picks the worker's own part afterwards."""

    def __init__(self, workers: int) -> None:
        self._workers = workers
        # Anonymous and shared: memory is taken only for the pages that are written.
        self._rows = memoryview(mmap.mmap(-1, workers * ROWS * ROW_BYTES))
        self._column = 0

    def use_column(self, column: int) -> None:
        self._column = column

    def clear_column(self, column: int) -> None:
        for row in range(column * ROWS, (column + 1) * ROWS):
            if self._key(row):
                self._clear(row)

    def add(self, session: BackendSession) -> tuple[bytes, int | None]:
        """The secret for the client, and the row to be given back when the session ends.

        The process id stays as it is, since clients compare it with `pg_backend_pid()` and with
        the sender of notifications; the secret is as long as the client's protocol allows.
        """
        size = SHORT_BYTES if len(session.secret) <= SHORT_BYTES else LONG_BYTES
        for _ in range(4):
            secret = os.urandom(size)
            row = self._free_row(secret)
            if row is not None:
                self._write(row, session, secret)
                return secret, row
        return secret, None  # never so full while connections are limited; it cannot be cancelled

    def remove(self, row: int) -> None:
        self._clear(row)

    def find(self, pid: int, secret: bytes) -> BackendSession | None:
        """None where no running session has this key."""
        if len(secret) not in (SHORT_BYTES, LONG_BYTES):
            return None
        wanted = _key(pid, secret)
        for column in range(self._workers):
            for row in self._candidates(column, secret):
                if self._key(row) == wanted:
                    return self._read(row, secret)
        return None

    def _candidates(self, column: int, secret: bytes) -> range:
        first = int.from_bytes(secret[:SHORT_BYTES], "big") % (ROWS - STEPS_MAX)
        return range(column * ROWS + first, column * ROWS + first + STEPS_MAX)

    def _free_row(self, secret: bytes) -> int | None:
        return next((r for r in self._candidates(self._column, secret) if not self._key(r)), None)

    def _key(self, row: int) -> int:
        return int(KEY.unpack_from(self._rows, row * ROW_BYTES)[0])

    def _clear(self, row: int) -> None:
        KEY.pack_into(self._rows, row * ROW_BYTES, 0)

    def _write(self, row: int, session: BackendSession, secret: bytes) -> None:
        """The key last: a row is found only when it is whole."""
        name = session.instance_id.encode()
        content = (len(secret), secret, len(name), name)
        backend = (session.pid, len(session.secret), session.secret)
        ROW.pack_into(self._rows, row * ROW_BYTES, 0, *content, *backend)
        KEY.pack_into(self._rows, row * ROW_BYTES, _key(session.pid, secret))

    def _read(self, row: int, secret: bytes) -> BackendSession | None:
        whole = bytes(self._rows[row * ROW_BYTES : row * ROW_BYTES + ROW.size])
        key, own_size, own, name_size, name, pid, size, backend_secret = ROW.unpack(whole)
        if self._key(row) != key or not hmac.compare_digest(own[:own_size], secret):
            return None  # its session ended just now, or only the beginning was right
        return BackendSession(name[:name_size].decode(), pid, backend_secret[:size])


def _key(pid: int, secret: bytes) -> int:
    # Never 0, which is a row that nobody has.
    return (pid << 32 | int.from_bytes(secret[:SHORT_BYTES], "big")) or 1
