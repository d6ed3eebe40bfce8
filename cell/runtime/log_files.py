"""The engines' log files: kept from growing, and read from their end on."""

import asyncio
import contextlib
import os
from collections.abc import AsyncIterator, Callable
from pathlib import Path

POLL_S = 0.25
CHUNK_BYTES = 64 * 1024
TAIL_BYTES_MAX = 4 * 2**20


def rotate(path: Path, bytes_max: int) -> None:
    """Sets a grown file's end aside. The engine holds it open to append, so it is copied and cut.

    No more than `bytes_max` is kept: an engine that is made to write much must not fill the disk,
    nor hold up the cell with the copy. What it was made to reserve past the end counts too.
    """
    size = _size(path)
    if max(size, _reserved(path)) <= bytes_max:
        return
    end = _read(path, max(0, size - bytes_max), bytes_max)
    path.with_suffix(".log.1").write_bytes(end)
    with contextlib.suppress(FileNotFoundError):
        os.truncate(path, 0)


def write(path: Path, line: str) -> None:
    """A line of ours, among those of the engine."""
    with path.open("a") as file:
        file.write(f"{line}\n")


def tail(path: Path, lines: int) -> bytes:
    """The last lines, of the file set aside too where this one has fewer."""
    content = b""
    for each in (path, path.with_suffix(".log.1")):
        if content.count(b"\n") <= lines:
            content = _end(each) + content
    return _last(content, lines)


def _last(content: bytes, lines: int) -> bytes:
    start = len(content)
    # The end of the last line belongs to it.
    before = start - content.endswith(b"\n")
    for _ in range(lines):
        before = content.rfind(b"\n", 0, before)
        if before < 0:
            return content
        start = before + 1
    return content[start:]


def follow(path: Path, lines: int, is_over: Callable[[], bool]) -> AsyncIterator[bytes]:
    """The last lines, and then whatever is written from this call on, until it is over."""
    return _follow(path, lines, _size(path), is_over)


async def _follow(
    path: Path, lines: int, position: int, is_over: Callable[[], bool]
) -> AsyncIterator[bytes]:
    yield await asyncio.to_thread(tail, path, lines)
    while True:
        await asyncio.sleep(POLL_S)
        if is_over():
            return
        size = _size(path)
        if size < position:
            position = 0
        while position < size and not is_over():
            chunk = await asyncio.to_thread(_read, path, position)
            if not chunk:
                break
            position += len(chunk)
            yield chunk


async def once(path: Path, lines: int) -> AsyncIterator[bytes]:
    yield await asyncio.to_thread(tail, path, lines)


def _end(path: Path) -> bytes:
    return _read(path, max(0, _size(path) - TAIL_BYTES_MAX), TAIL_BYTES_MAX)


def _read(path: Path, position: int, size_bytes: int = CHUNK_BYTES) -> bytes:
    try:
        with path.open("rb") as file:
            file.seek(position)
            return file.read(size_bytes)
    except FileNotFoundError:
        return b""


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except FileNotFoundError:
        return 0


def _reserved(path: Path) -> int:
    try:
        return path.stat().st_blocks * 512
    except FileNotFoundError:
        return 0
