"""Function libraries in a log on disk: left out, so that a server starts without running them.

A server runs the code of each library before it answers anybody. What stands for one is written
over in place, with something of the same length that does nothing, so that a log of any size is
changed within moments, and can be changed back.
"""

import contextlib
import os
import threading
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from cell.engines.resp.file_content import FileContent
from cell.runtime.engine_files import Place, opened
from cell.runtime.own_threads import in_daemon_thread

MAGIC = (b"REDIS", b"VALKEY")
# What a dump begins with: its format's name and version, of nine bytes in all.
HEADER_BYTES = 9
AUXILIARY, LIBRARY, END = 0xFA, 0xF5, 0xFF
CHECKSUM_BYTES = 8
# Unlike a wrong one, this means that there is none.
NO_CHECKSUM = bytes(CHECKSUM_BYTES)
# Texts: how long their length is in their first byte's upper bits, or how they are encoded.
LONG = 0x80
INTEGERS = {0: 1, 1: 2, 2: 4}
COMPRESSED = 3
CALL = b"$8\r\nFUNCTION\r\n"
# As long, takes whatever words follow, and changes nothing.
NOTHING = b"$006\r\nEXISTS\r\n"
LINE = b"\r\n"
# Lengths of what follows, and notes.
LINE_BYTES_MAX = 4_096
BLOCK_BYTES = 1 << 20
# Of a log; one with more commands than can be looked at in it is left as it is.
WITHIN_S = 60.0
# After so many commands others have their turn: whoever holds the interpreter holds up the cell.
COMMANDS_AT_ONCE = 2_000
PAUSE_S = 0.005
# One server's at a time, on a thread that nobody else waits for.
_LOOKING = threading.Lock()


@dataclass(frozen=True)
class UndoRecord:
    """What stood at a place of a file before."""

    path: Place
    offset: int
    former: bytes


async def leave_out(files: Sequence[Place]) -> list[UndoRecord]:
    """Of a server that does not run; answers what was changed, in order.

    Whoever gives up meanwhile may start the server: nothing is written from then on.
    """
    is_wanted = threading.Event()
    is_wanted.set()
    try:
        return await in_daemon_thread(_leave_out_all, files, is_wanted)
    finally:
        is_wanted.clear()


def _leave_out_all(files: Sequence[Place], is_wanted: threading.Event) -> list[UndoRecord]:
    with _LOOKING:
        return [change for path in files for change in _leave_out(path, is_wanted)]


def put_back(changes: Sequence[UndoRecord]) -> None:
    for change in reversed(changes):
        with contextlib.suppress(OSError), opened(change.path, os.O_RDWR) as descriptor:
            os.pwrite(descriptor, change.former, change.offset)
            os.fdatasync(descriptor)


def _leave_out(path: Place, is_wanted: threading.Event) -> list[UndoRecord]:
    if not is_wanted.is_set():
        return []
    try:
        with opened(path, os.O_RDWR) as descriptor:
            if os.fstat(descriptor).st_size == 0:
                return []
            content = FileContent(descriptor)
            wanted = _changes(content, descriptor)
            changes = [
                UndoRecord(path, offset, content[offset : offset + len(new)])
                for offset, new in wanted
            ]
            if not is_wanted.is_set():
                return []
            for offset, new in wanted:
                os.pwrite(descriptor, new, offset)
                os.fdatasync(descriptor)
            return changes
    except OSError:
        # Not a file of a server's; the server will say so.
        return []


def _changes(content: FileContent, descriptor: int) -> list[tuple[int, bytes]]:
    """In the order in which they may be made: in between, the file is still one that is read."""
    if content[:HEADER_BYTES].startswith(MAGIC):
        return _of_dump(content)
    if not _mentions_functions(descriptor):
        return []
    try:
        return [(offset, NOTHING) for offset in _calls(content)]
    except TimeoutError:
        return []


def _mentions_functions(descriptor: int) -> bool:
    """By blocks, between which others have their turn: a log may have gigabytes."""
    offset = 0
    while block := os.pread(descriptor, BLOCK_BYTES + len(CALL), offset):
        if CALL in block.upper():
            return True
        offset += BLOCK_BYTES
    return False


class _Patience:
    """For a file of many small parts: others have their turn, and it has an end."""

    def __init__(self) -> None:
        self._count = 0
        self._until = time.monotonic() + WITHIN_S

    def use(self) -> None:
        """Raises TimeoutError."""
        self._count += 1
        if self._count % COMMANDS_AT_ONCE == 0:
            time.sleep(PAUSE_S)
            if time.monotonic() > self._until:
                raise TimeoutError


def _of_dump(content: FileContent) -> list[tuple[int, bytes]]:
    """All libraries become one note, which no server knows and each skips."""
    patience = _Patience()
    try:
        offset = HEADER_BYTES
        while content[offset] == AUXILIARY:
            patience.use()
            offset = _after_text(content, _after_text(content, offset + 1))
        first = offset
        while content[offset] == LIBRARY:
            patience.use()
            offset = _after_text(content, offset + 1)
    except (IndexError, TimeoutError):
        return []
    end = len(content) - CHECKSUM_BYTES
    if offset == first or offset >= end or content[end - 1] != END:
        return []
    start = bytes((AUXILIARY, 1)) + b"-" + bytes((LONG,))
    length = offset - first - len(start) - 4
    return [(end, NO_CHECKSUM), (first, start + length.to_bytes(4, "big"))]


def _after_text(content: FileContent, offset: int) -> int:
    """Where what follows a text begins; IndexError where there is none."""
    kind, rest = content[offset] >> 6, content[offset] & 0x3F
    if kind == 3 and rest == COMPRESSED:  # noqa: PLR2004 - the last of two bits' four
        length, offset = _length(content, offset + 1)
        _, offset = _length(content, offset)
        return offset + length
    if kind == 3:  # noqa: PLR2004 - as above
        return offset + 1 + INTEGERS.get(rest, 0)
    length, offset = _length(content, offset)
    return offset + length


def _length(content: FileContent, offset: int) -> tuple[int, int]:
    """With where what follows it begins."""
    first = content[offset]
    if first >> 6 == 0:
        return first, offset + 1
    if first >> 6 == 1:
        return (first & 0x3F) << 8 | content[offset + 1], offset + 2
    size = 4 if first == LONG else 8
    return int.from_bytes(content[offset + 1 : offset + 1 + size], "big"), offset + 1 + size


def _calls(content: FileContent) -> Iterator[int]:
    """Where commands that change functions have their name, in a log of commands.

    TimeoutError where there are too many commands to look at.
    """
    offset = 0
    patience = _Patience()
    with contextlib.suppress(ValueError):
        while offset < len(content):
            patience.use()
            line, offset = _line(content, offset)
            if not line.startswith(b"*"):
                # A note, such as of the time.
                continue
            for place in range(int(line[1:])):
                if place == 0 and content[offset : offset + len(CALL)].upper() == CALL:
                    yield offset
                line, offset = _line(content, offset)
                length = max(0, int(line[1:]))
                offset += length + len(LINE)


def _line(content: FileContent, offset: int) -> tuple[bytes, int]:
    """ValueError where the file ends before."""
    if (end := content.find(LINE, offset, offset + LINE_BYTES_MAX)) < 0:
        raise ValueError
    return content[offset:end], end + len(LINE)
