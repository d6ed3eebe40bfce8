"""How many bytes a copy of an instance's files may write, and what ends it before."""

import asyncio
import contextlib
from collections.abc import Callable, Iterator
from contextvars import ContextVar
from dataclasses import dataclass
from typing import IO, Protocol

from cell.runtime import pace
from cell.runtime.process import Process

BLOCK_BYTES = 1 << 18


class CopyError(OSError):
    """The copy was stopped; the text is for the owner."""


@dataclass
class _Budget:
    limit_bytes: int
    left_bytes: int
    process: Process | None
    ended: Callable[[], str | None] | None
    broken_off: bool = False


# Threads that a copy is handed to take it along.
_NOW: ContextVar[_Budget | None] = ContextVar("budget", default=None)


@contextlib.contextmanager
def limit(
    limit_bytes: int,
    process: Process | None = None,
    ended: Callable[[], str | None] | None = None,
) -> Iterator[None]:
    """Copies within write no more, and end with the process whose files they copy.

    They end as well once `ended` says why, which a limit within this one keeps, and once nobody
    waits for them any more.
    """
    if ended is None and (outer := _NOW.get()) is not None:
        ended = outer.ended
    made = _Budget(limit_bytes, limit_bytes, process, ended)
    token = _NOW.set(made)
    try:
        yield
    except asyncio.CancelledError:
        made.broken_off = True
        raise
    finally:
        _NOW.reset(token)


def limit_bytes() -> int | None:
    now = _NOW.get()
    return None if now is None else now.limit_bytes


def spend(count: int) -> None:
    """Before so many bytes are written. Raises CopyError; each copy of a copy counts by itself."""
    now = _NOW.get()
    if now is None:
        return
    if now.process is not None and not now.process.alive:
        raise CopyError("the engine ended while its data was being copied")
    _check(now)
    now.left_bytes -= count
    if now.left_bytes < 0:
        raise exceeded(now.limit_bytes)
    if count:
        pace.rest()


def go_on() -> None:
    """Between two blocks of a copy that are only read. Raises CopyError where it is to end."""
    if (now := _NOW.get()) is not None:
        _check(now)
    pace.rest()


def _check(now: _Budget) -> None:
    if now.broken_off:
        raise CopyError("the copy was canceled")
    if now.ended is not None and (why := now.ended()) is not None:
        raise CopyError(why)


def exceeded(limit: int) -> CopyError:
    return CopyError(
        f"the copy would be larger than {limit / 10**9:.2f} GB, which is more than the instance's "
        "storage allows; remove data, or choose more storage or a larger size"
    )


class _Writes(Protocol):
    def write(self, content: bytes, /) -> int: ...


def copy(reading: IO[bytes], writing: _Writes) -> None:
    """From one file to the other, however long the first grows."""
    while block := reading.read(BLOCK_BYTES):
        spend(len(block))
        writing.write(block)
