"""Copies of a cluster of which the next holds what has changed since the one before it."""

import os
import re
import secrets
import tarfile
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import PurePosixPath
from typing import IO, Final, cast

import psycopg
import structlog

from cell.engines.driver import EngineError, Login
from cell.engines.increments import CopyMark, PackedCopy
from cell.engines.packed_snapshots import ArchiveOutput
from cell.engines.postgres import archive, backup, changes, connections
from cell.engines.postgres.archive import Packing
from cell.engines.postgres.changes import RELATION, ChangedBlocks, UnknownChangesError
from cell.engines.postgres.roles import Connection
from cell.layout import Site
from cell.runtime import budget, engine_files, patches
from cell.runtime.engine_files import EnginePath
from cell.runtime.host import Host
from cell.runtime.own_threads import in_quiet_thread
from cell.runtime.patches import BLOCK_BYTES
from cell.runtime.process import Process

log = structlog.get_logger("cell.postgres")

DATA_ID: Final = archive.DATA_ID
_ID: Final = re.compile(r"[0-9a-f]{32}")
# Of temporary tables: what a server removes when it starts.
_TEMPORARY: Final = re.compile(r"base/\d+/t\d+_\d+(_[a-z]+)?(\.\d+)?")
# As every server has it that we run; one that was built otherwise is copied whole.
USUAL: Final = ("on", str(BLOCK_BYTES), "1GB")
# Whoever has more tables has full backups: the names of all files are in the cell's memory.
RELATIONS_MAX: Final = 100_000
_HEADER_BYTES: Final = tarfile.BLOCKSIZE
ABOUT = """
SELECT (SELECT system_identifier::text FROM pg_catalog.pg_control_system()),
    pg_catalog.current_setting('summarize_wal', true), pg_catalog.current_setting('block_size'),
    pg_catalog.current_setting('segment_size')
"""


class MarkedPacking(Packing):
    """Notes how many blocks of each relation it writes; with `changed`, only those."""

    def __init__(
        self,
        output: ArchiveOutput,
        changed: ChangedBlocks | None = None,
        former: CopyMark | None = None,
    ) -> None:
        super().__init__(output, archive.UNPACKED)
        self._changed = changed
        self._former = {} if former is None else former.blocks
        self.blocks: dict[str, int] = {}
        # Of an archive with all of it.
        self.whole_bytes = 0

    def _add(self, name: PurePosixPath, path: str, folder: int, descriptor: int) -> int:
        is_relation = RELATION.fullmatch(str(name)) is not None
        if self._changed is not None and _is_made_anew(str(name), path, folder):
            return 0
        blocks, rest = divmod(os.fstat(descriptor).st_size, BLOCK_BYTES)
        if is_relation and self._changed is not None and blocks and not rest:
            former = self._former.get(str(name))
            needed = self._changed.needed(str(name), blocks, former)
            if needed is not None:
                self._note(str(name), blocks)
                return self._patch(name, descriptor, blocks, needed)
        size = super()._add(name, path, folder, descriptor)
        self.whole_bytes += size + _HEADER_BYTES
        if is_relation and size % BLOCK_BYTES == 0:
            # As many as were written, whatever came to it meanwhile.
            self._note(str(name), size // BLOCK_BYTES)
        return size

    def _note(self, name: str, blocks: int) -> None:
        if len(self.blocks) <= RELATIONS_MAX:
            self.blocks[name] = blocks

    def _patch(
        self, name: PurePosixPath, descriptor: int, blocks: int, needed: Sequence[int]
    ) -> int:
        self.whole_bytes += blocks * BLOCK_BYTES + _HEADER_BYTES
        member = tarfile.TarInfo(str(PurePosixPath(patches.FOLDER) / self._top / name))
        member.mode = 0o600
        if not needed and blocks == self._former.get(str(name)):
            budget.go_on()
            self._tar.addfile(member)
            return 0
        head = patches.header(blocks, needed)
        member.size = len(head) + len(needed) * BLOCK_BYTES
        reading = _Blocks(descriptor, head, needed, self._blocks)
        self._tar.addfile(member, cast("IO[bytes]", reading))
        return member.size


class _Blocks:
    """A header and blocks of a file. What was cut off meanwhile reads as zeros."""

    def __init__(
        self,
        descriptor: int,
        head: bytes,
        numbers: Sequence[int],
        buffers: Iterator[memoryview],
    ) -> None:
        self._descriptor = descriptor
        self._head = head
        self._numbers = numbers
        self._next = 0
        self._done = 0
        """Of the block that is next."""
        self._buffers = buffers

    def read(self, wanted: int) -> memoryview:
        """All of that, which there is."""
        content = next(self._buffers)[:wanted]
        filled = min(len(self._head), len(content))
        content[:filled], self._head = self._head[:filled], self._head[filled:]
        while filled < len(content):
            count = min(self._run_bytes(len(content) - filled), len(content) - filled)
            offset = self._numbers[self._next] * BLOCK_BYTES + self._done
            _read(self._descriptor, content[filled : filled + count], offset)
            blocks, self._done = divmod(self._done + count, BLOCK_BYTES)
            self._next += blocks
            filled += count
        return content

    def _run_bytes(self, most: int) -> int:
        """How far it goes on without a gap."""
        first, last = self._next, self._next
        while (last - first) * BLOCK_BYTES < most and last + 1 < len(self._numbers):
            if self._numbers[last + 1] != self._numbers[last] + 1:
                break
            last += 1
        return (last - first + 1) * BLOCK_BYTES - self._done


def _read(descriptor: int, content: memoryview, offset: int) -> None:
    done = 0
    while done < len(content):
        count = os.preadv(descriptor, [content[done:]], offset + done)
        if count == 0:
            content[done:] = bytes(len(content) - done)
            return
        done += count


def _is_made_anew(name: str, path: str, folder: int) -> bool:
    """By a server that recovers: what is unlogged. What is temporary it removes."""
    if _TEMPORARY.fullmatch(name) is not None:
        return True
    if RELATION.fullmatch(name) is None:
        return False
    try:
        os.stat(f"{path.partition('.')[0]}_init", dir_fd=folder, follow_symlinks=False)
    except FileNotFoundError:
        return False
    return True


async def copy(
    host: Host,
    site: Site,
    login: Login,
    process: Process | None,
    output: ArchiveOutput,
    former: CopyMark | None,
) -> PackedCopy:
    """All of it, of a server that does not run."""
    if process is None:
        packing = Packing(output, archive.UNPACKED)
        return PackedCopy(await backup.copy(site, login, process, packing))
    try:
        async with connections.administration(site.run, login) as connection:
            began = await backup.begin(connection)
            mark = await _mark(connection, site.data, host.owner(site), began)
            changed = await _changed(connection, site, former, mark)
            packing = MarkedPacking(output, changed, former)
            made = await backup.pack(connection, site.data, packing)
            made = replace(made, size_bytes=packing.whole_bytes)
            if len(packing.blocks) > RELATIONS_MAX:
                mark = None
            elif mark is not None:
                mark = replace(mark, blocks=packing.blocks)
            return PackedCopy(made, mark, is_incremental=changed is not None)
    except connections.NotRunningError as error:
        raise EngineError("the server is not responding") from error
    except psycopg.Error as error:
        raise EngineError(f"the server refused the backup: {error}") from error


async def _mark(
    connection: Connection, data: EnginePath, owner: int | None, began: backup.BackupBegin
) -> CopyMark | None:
    """None where no increment can build on it."""
    row = await (await connection.execute(ABOUT.encode())).fetchone()
    assert row is not None
    system_id, *settings = row
    if tuple(settings) != USUAL:
        return None
    data_id = await in_quiet_thread(_data_id, data, owner)
    return CopyMark(data_id, system_id, began.timeline, began.position, {})


def _data_id(data: EnginePath, owner: int | None) -> str:
    """Of the folder. No copy has it: WAL of other data may have the same numbers."""
    place = data / DATA_ID
    found = engine_files.read(place, len("0" * 33)).decode("ascii", "replace")
    if _ID.fullmatch(found) is None:
        found = secrets.token_hex(16)
        engine_files.make_file(place, owner, found.encode())
    return found


async def _changed(
    connection: Connection, site: Site, former: CopyMark | None, now: CopyMark | None
) -> ChangedBlocks | None:
    if former is None or now is None:
        return None
    try:
        return await changes.since(connection, former, now)
    except UnknownChangesError as error:
        log.info("cell.backup_is_full", instance_id=site.instance_id, reason=str(error))
        return None
