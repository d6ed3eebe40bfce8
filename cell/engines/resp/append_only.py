"""The append-only files (AOF) of a server as the log of its changes, up to any second.

A server that writes its data anew begins another file at the same moment: what is in a base and
in the files from its number on is all there is.
"""

import mmap
import re
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Final

from cell.engines import log_pieces
from cell.engines.driver import EngineError
from cell.engines.resp.configuration import LOG, LOG_DIRECTORY, TIMESTAMPS
from cell.engines.resp.connection import RefusalError, RespConnection
from cell.engines.resp.files import MANIFEST
from cell.engines.wal_sources import LogPlace
from cell.layout import Site
from cell.runtime import budget, engine_files
from cell.runtime.engine_files import EnginePath

MANIFEST_BYTES_MAX: Final = 2**20
_ENTRY: Final = re.compile(r"file (\S+) seq \d+ type ([bi])", re.ASCII)
_INCREMENT: Final = re.compile(rf"{re.escape(LOG)}\.(\d+)\.incr\.aof", re.ASCII)
_BASE: Final = re.compile(rf"{re.escape(LOG)}\.(\d+)\.base\.(?:rdb|aof)", re.ASCII)
# As a server writes it; a value may look like one, and of any length.
_NOTE: Final = re.compile(rb"#TS:(\d{1,12})\r\n", re.ASCII)
END: Final = b"\r\n"
# After so many commands it is looked whether the restore is still wanted.
COMMANDS_AT_ONCE: Final = 10_000
LINE_BYTES_MAX: Final = 4096


class AppendOnlyFiles:
    def __init__(
        self, connected: Callable[[Site], AbstractAsyncContextManager[RespConnection]]
    ) -> None:
        self._connected = connected

    async def open(self, site: Site) -> LogPlace:
        try:
            async with self._connected(site) as connection:
                # One that an earlier version of ours started does not note the time.
                await connection.ask("CONFIG", "SET", *TIMESTAMPS)
        except (OSError, RefusalError) as error:
            raise EngineError(f"the engine does not respond: {error}") from error
        files = self.files(site)
        if not files:
            raise EngineError("the engine has no append-only file yet")
        number = max(files)
        found = engine_files.find(files[number])
        if found is None:
            raise EngineError("the engine is writing its append-only files anew")
        return LogPlace(number, found.st_size)

    def files(self, site: Site) -> dict[int, EnginePath]:
        return increments(site)

    async def release(self, site: Site, before: int) -> None:
        """The server removes them itself."""

    async def expire(self, site: Site, after_s: int) -> None:
        """As above."""


def increments(site: Site) -> dict[int, EnginePath]:
    """The files of commands that the server lists, by number and in order."""
    folder = site.data / LOG_DIRECTORY
    named = (_INCREMENT.fullmatch(name) for name, kind in _listed(site) if kind == "i")
    return {int(name[1]): folder / name[0] for name in named if name}


def base(site: Site) -> EnginePath | None:
    """The file that the commands are to be added to."""
    names = [name for name, kind in _listed(site) if kind == "b" and _BASE.fullmatch(name)]
    return site.data / LOG_DIRECTORY / names[0] if names else None


def _listed(site: Site) -> list[tuple[str, str]]:
    content = engine_files.read(site.data / LOG_DIRECTORY / MANIFEST, MANIFEST_BYTES_MAX)
    found = map(_ENTRY.match, content.decode(errors="replace").splitlines())
    return [(each[1], each[2]) for each in found if each]


def add_log(source: Path, at: int) -> None:
    """To the copy of a base, the archived files in its folder `wal`, up to the second `at`."""
    bases = [found for path in source.iterdir() if (found := _BASE.fullmatch(path.name))]
    if len(bases) != 1:
        raise EngineError("the backup does not have one base")
    number = int(bases[0][1])
    lines = [f"file {bases[0][0]} seq {number} type b"]
    for increment, path in sorted(log_pieces.join(source / "wal", number).items()):
        try:
            is_cut = cut(path, at)
        except ValueError as error:
            raise EngineError(f"append-only file {increment} cannot be read") from error
        path.rename(source / f"{LOG}.{increment}.incr.aof")
        lines.append(f"file {LOG}.{increment}.incr.aof seq {increment} type i")
        if is_cut:
            break
    (source / MANIFEST).write_text("".join(f"{line}\n" for line in lines))


def cut(path: Path, at: int) -> bool:
    """Removes from a log what was run in the second `at` and later; whether there was any."""
    if path.stat().st_size == 0:
        return False
    with path.open("r+b") as file:
        with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as content:
            # Most have none, which is seen much sooner than what is a note and what a value.
            if not any(int(each[1]) >= at for each in _NOTE.finditer(content)):
                return False
            end = _first_after(content, at)
        if end is None:
            return False
        file.truncate(end)
    return True


def _first_after(content: mmap.mmap, at: int) -> int | None:
    """Where the first command of the second `at` or a later one begins, with its note.

    A transaction that was not over by then is left out as a whole.
    """
    offset, begun, count = 0, None, 0
    while offset < len(content):
        if (count := count + 1) % COMMANDS_AT_ONCE == 0:
            budget.go_on()
        start, (line, offset) = offset, _line(content, offset)
        if line.startswith(b"#"):
            noted = _NOTE.fullmatch(line + END)
            if noted is not None and int(noted[1]) >= at:
                return start if begun is None else begun
            continue
        name, offset = _command(content, line, offset)
        if name == b"MULTI":
            begun = start
        elif name == b"EXEC":
            begun = None
    return None


def _command(content: mmap.mmap, line: bytes, offset: int) -> tuple[bytes, int]:
    """Its name, and where what follows it begins."""
    name = b""
    for place in range(int(line[1:])):
        told, offset = _line(content, offset)
        end = offset + int(told[1:])
        if place == 0:
            name = content[offset : min(end, offset + LINE_BYTES_MAX)].upper()
        offset = end + 2
    return name, offset


def _line(content: mmap.mmap, offset: int) -> tuple[bytes, int]:
    end = content.find(END, offset, offset + LINE_BYTES_MAX)
    if end < 0:
        # What the server was writing when it was killed; it leaves it out, too.
        return b"#", len(content)
    return content[offset:end], end + 2
