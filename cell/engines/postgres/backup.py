"""A copy of a cluster while its server runs: PostgreSQL's own backup, taken file by file."""

import re
import secrets
from dataclasses import dataclass, replace
from pathlib import PurePosixPath

import psycopg

from cell.engines.driver import EngineError, Login, Snapshot
from cell.engines.postgres import archive, connections
from cell.engines.postgres.archive import Packing
from cell.engines.postgres.roles import Connection
from cell.engines.wal_sources import WalNeed
from cell.layout import Site
from cell.runtime import engine_files
from cell.runtime.engine_files import EnginePath
from cell.runtime.own_threads import in_quiet_thread
from cell.runtime.process import Process

GLOBAL = "global"
CONTROL = "pg_control"
LOG = "pg_wal"
# What a server writes anew at its start: the folders stay and their files do not.
EMPTIED = frozenset(
    {
        *("pg_dynshmem", "pg_notify", "pg_replslot", "pg_serial", "pg_snapshots", "pg_stat_tmp"),
        *("pg_subtrans", LOG),
    }
)
LABELS = frozenset({"backup_label", "backup_label.old", "tablespace_map", f"{GLOBAL}/{CONTROL}"})
_SEGMENT = re.compile(r"[0-9A-F]{24}")
_FIRST = re.compile(r"\(file ([0-9A-F]{24})\)")


@dataclass(frozen=True)
class BackupBegin:
    """Where in the log it begins: the number of a byte, of a timeline."""

    position: int
    timeline: int


@dataclass(frozen=True)
class BackupEnd:
    """What the server says of a backup: `label` goes with it, `first` to `last` is its log."""

    label: str
    first: str
    last: str


async def copy(site: Site, login: Login, process: Process | None, packing: Packing) -> Snapshot:
    """Of a server that runs, or does not."""
    if process is None:
        return await in_quiet_thread(archive.pack_into, site.data, packing)
    try:
        return await take(site.run, login, site.data, packing)
    except connections.NotRunningError as error:
        raise EngineError("the server is not responding") from error
    except psycopg.Error as error:
        raise EngineError(f"the server refused the backup: {error}") from error


async def take(folder: EnginePath, login: Login, data: EnginePath, packing: Packing) -> Snapshot:
    """The session must last: with it ends the backup, and what holds its part of the log back."""
    async with connections.administration(folder, login) as connection:
        await begin(connection)
        return await pack(connection, data, packing)


async def begin(connection: Connection) -> BackupBegin:
    """It has a checkpoint by then, and keeps its part of the log."""
    slot = f"snapshot_{secrets.token_hex(8)}"
    await connection.execute(
        "SELECT pg_catalog.pg_create_physical_replication_slot(%s, true, true)", [slot]
    )
    found = await connection.execute(
        "SELECT (lsn - '0/0'::pg_catalog.pg_lsn)::int8, pg_catalog.pg_walfile_name(lsn)"
        " FROM pg_catalog.pg_backup_start(label => 'snapshot', fast => true) AS lsn"
    )
    row = await found.fetchone()
    assert row is not None
    return BackupBegin(row[0], int(row[1][:8], 16))


async def pack(connection: Connection, data: EnginePath, packing: Packing) -> Snapshot:
    """All files, and what is needed of the log, which is the end of the backup."""
    await in_quiet_thread(packing.tree, data, _left_out)
    found = await connection.execute(
        "SELECT labelfile, pg_catalog.pg_walfile_name(lsn),"
        " extract(epoch FROM pg_catalog.clock_timestamp())::float8"
        " FROM pg_catalog.pg_backup_stop(wait_for_archive => false)"
    )
    row = await found.fetchone()
    if row is None or (first := _FIRST.search(row[0])) is None:
        raise EngineError("the server did not report the WAL range of the backup")
    ended = BackupEnd(row[0], first.group(1), row[1])
    made = await in_quiet_thread(_complete, packing, data, ended)
    return replace(made, wal=WalNeed(ended.first, row[2]))


def _left_out(name: PurePosixPath) -> bool:
    inside = len(name.parts) > 1 and name.parts[0] in EMPTIED
    return inside or str(name) in LABELS or archive.passing(name)


def _complete(packing: Packing, data: EnginePath, ended: BackupEnd) -> Snapshot:
    """The log first and the control file last, as it tells how far the rest goes."""
    packing.folder(PurePosixPath(LOG) / "archive_status")
    names = [name for name in engine_files.names(data / LOG) if _SEGMENT.fullmatch(name)]
    needed = [name for name in names if ended.first <= name <= ended.last]
    if not needed or (needed[0], needed[-1]) != (ended.first, ended.last):
        raise EngineError("the server removed WAL that the backup needs; try again")
    packing.files(data, LOG, needed)
    packing.content("backup_label", ended.label.encode())
    packing.files(data, GLOBAL, [CONTROL])
    return packing.finish()
