"""Pieces of an engine's log files, as they are archived: each says of which file, and where in it.

They are numbered as WAL segments are, without a gap, and none has more of a file than fits.
"""

import struct
from pathlib import Path
from typing import Final

from cell.engines.driver import EngineError
from cell.engines.wal_sources import LogPlace
from cell.runtime import budget

TIMELINE: Final = 0
"""Of the names of pieces; no server's WAL has it."""
_HEADER: Final = struct.Struct(">QQ")
CONTENT_BYTES_MAX: Final = 16 * 2**20 - _HEADER.size


def pack(place: LogPlace, content: bytes) -> bytes:
    return _HEADER.pack(place.file, place.offset) + content


def join(folder: Path, first: int) -> dict[int, Path]:
    """The log files that the pieces in `folder` are of, from the first on, by their numbers.

    They take the place of the pieces. EngineError where something is missing.
    """
    found: dict[int, Path] = {}
    for piece in sorted(folder.iterdir()):
        with piece.open("rb") as reading:
            number, offset = _HEADER.unpack(reading.read(_HEADER.size))
            if number >= first:
                if number not in (max(found, default=first), max(found, default=first - 1) + 1):
                    raise EngineError(f"the log file before {number} is missing")
                found[number] = folder / f"file-{number}"
                _write(found[number], offset, reading.read())
        piece.unlink()
    return found


def _write(path: Path, offset: int, content: bytes) -> None:
    """What is there already is the same."""
    budget.go_on()
    size = path.stat().st_size if path.exists() else 0
    if offset > size:
        raise EngineError(f"bytes {size} to {offset} of a log file are missing")
    with path.open("r+b" if path.exists() else "xb") as writing:
        writing.seek(offset)
        writing.write(content)
