"""The binary log of a MariaDB server: all changes in the order of their commits, by the second.

Its files lie beside the data, so that no copy has them, and go once they are archived.
"""

import mmap
import re
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from cell.engines.driver import EngineError
from cell.engines.mysql import administrator, client
from cell.engines.mysql import files as data_files
from cell.engines.wal_sources import LogPlace
from cell.layout import Site
from cell.runtime import engine_files
from cell.runtime.engine_files import EnginePath
from cell.runtime.engine_folders import EngineFolders
from cell.runtime.host import Host

FOLDER: Final = "binlog"
POSITION: Final = "log-position"
"""In the folder of a copy: from where on the log continues it."""
MAGIC: Final = b"\xfebin"
# Of an event: when, its kind, whose, its length, where it ends in its file, flags.
EVENT: Final = struct.Struct("<IBIIIH")
GTID: Final = 162
_IN_USE: Final = 1
_FILE: Final = re.compile(rf"{FOLDER}\.(\d{{6,10}})", re.ASCII)
_TOLD: Final = re.compile(rb"binlog\.(\d{6,10})\t(\d{1,12})\t[^\n]*\n?", re.ASCII)
NOT_LOGGED: Final = (
    "the engine was started without its binary log; pause and resume the instance, and moments "
    "from then on can be restored"
)


def options(view: EngineFolders) -> list[str]:
    """What a server is started with."""
    place = view.data / FOLDER / FOLDER
    return [
        *(f"--log-bin={place}", f"--log-bin-index={place}.index", "--server-id=1"),
        # What a statement did, and not the statement; of a row, what has changed.
        *("--binlog-format=ROW", "--binlog-row-image=MINIMAL", "--binlog-annotate-row-events=OFF"),
        "--binlog-checksum=CRC32",
        # By the time in it a moment is found: a session that could set its own would hide the rest.
        "--secure-timestamp=SUPER",
        # An owner's function is logged by what it did.
        "--log-bin-trust-function-creators=ON",
        # A commit is on disk in the log, by which the data is mended after a power cut.
        "--sync-binlog=1",
        # So that what is archived can go soon. A start removes nothing: it may not be archived yet.
        *("--max-binlog-size=16M", "--binlog-expire-logs-seconds=0"),
    ]


def prepare(host: Host, site: Site, *, wanted: bool) -> bool:
    """Before a start; whether it must log. After a crash the data is mended by the log."""
    folder = site.data / FOLDER
    found = engine_files.find(folder) is not None
    if found and not wanted and _was_ended_in_order(site):
        engine_files.remove(folder)
        return False
    if not found and wanted:
        engine_files.make_folder(folder, host.owner(site))
    if found or wanted:
        _write_index(host, site)
    return found or wanted


def _write_index(host: Host, site: Site) -> None:
    """The server's own has the paths as they were when it last ran."""
    index, view = site.data / FOLDER / f"{FOLDER}.index", host.view(site).data / FOLDER
    lines = "".join(f"{view / path.name}\n" for path in files(site).values())
    engine_files.make_file(index, host.owner(site), lines.encode())


def files(site: Site) -> dict[int, EnginePath]:
    """By number, in order."""
    folder = site.data / FOLDER
    found = {
        int(name[1]): folder / name[0]
        for name in map(_FILE.fullmatch, engine_files.names(folder))
        if name
    }
    return dict(sorted(found.items()))


def _was_ended_in_order(site: Site) -> bool:
    there = files(site)
    if not there:
        return True
    content = engine_files.read(there[max(there)], len(MAGIC) + EVENT.size)
    if len(content) < len(MAGIC) + EVENT.size:
        return False
    *_, flags = EVENT.unpack_from(content, len(MAGIC))
    return not flags & _IN_USE


def copy_unfinished(site: Site, target: Path) -> None:
    """Into the copy of a server that was killed: by its log, transactions are ended or undone."""
    if not _was_ended_in_order(site):
        data_files.copy(site.data / FOLDER, target / FOLDER)


def put_unfinished(host: Host, site: Site, source: Path) -> None:
    """Back into a site that has none."""
    folder, owner = site.data / FOLDER, host.owner(site)
    engine_files.remove(folder)
    if (source / FOLDER).is_dir():
        data_files.copy(source / FOLDER, folder)
        data_files.settle(folder, owner)


class BinaryLog:
    def __init__(self, host: Host) -> None:
        self._host = host

    async def open(self, site: Site) -> LogPlace:
        """At the beginning of a new file."""
        await self._tell(site, "FLUSH BINARY LOGS")
        there = files(site)
        if not there:
            raise EngineError(NOT_LOGGED)
        return LogPlace(max(there), 0)

    def files(self, site: Site) -> dict[int, EnginePath]:
        return files(site)

    async def release(self, site: Site, before: int) -> None:
        await self._tell(site, f"PURGE BINARY LOGS TO '{FOLDER}.{before:06}'")

    async def expire(self, site: Site, after_s: int) -> None:
        await self._tell(site, f"SET GLOBAL binlog_expire_logs_seconds = {after_s}")

    async def _tell(self, site: Site, statement: str) -> None:
        ours = administrator.login(self._host, site)
        try:
            await client.tell(site.socket, ours.username, ours.password, [statement])
        except client.FAILURES as error:
            raise EngineError(f"the engine does not tell of its binary log: {error}") from error


def current(cursor: Any) -> LogPlace | None:
    """Where the next change will be; None where the server logs none."""
    cursor.execute("SHOW MASTER STATUS")
    if (row := cursor.fetchone()) is None:
        return None
    found = _FILE.fullmatch(row[0])
    return None if found is None else LogPlace(int(found[1]), int(row[1]))


def position(told: bytes) -> LogPlace:
    """As the backup tool notes it. EngineError where it is something else."""
    found = _TOLD.fullmatch(told)
    if found is None:
        raise EngineError("the backup tool did not tell the position of the binary log")
    return LogPlace(int(found[1]), int(found[2]))


def note(target: Path, place: LogPlace) -> None:
    """Beside the copy of the data."""
    (target / POSITION).write_text(f"{place.file} {place.offset}\n")


def noted(source: Path) -> LogPlace:
    file, offset = map(int, (source / POSITION).read_text().split())
    return LogPlace(file, offset)


def events(content: bytes | mmap.mmap) -> Iterator[tuple[int, int, int, int]]:
    """Of a file: where each event begins, its kind, its time in unix seconds, and its length.

    One that the server was writing when it was killed is none.
    """
    offset = len(MAGIC)
    while offset + EVENT.size <= len(content):
        at, kind, _, length, _, _ = EVENT.unpack_from(content, offset)
        if length < EVENT.size or offset + length > len(content):
            return
        yield offset, kind, at, length
        offset += length
