"""Files that no relation owns: those of transactions that were under way when a server crashed.

PostgreSQL leaves them for ever, and they count as storage that nobody can free. What is removed was
there before the server took sessions, and so the checkpoint that ends a recovery, or a server, lies
between it and whatever could still be written or recovered of it. A file keeps its number from
being given again, so that one without an owner gets none, once those have ended that may have made
it. Their transactions are waited for by themselves: clocks can be set.
"""

import asyncio
import os
import re
import stat
from collections.abc import Mapping
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from pathlib import Path

import structlog

from cell.engines.driver import Login
from cell.engines.postgres import connections, data_folder, roles
from cell.engines.postgres.ended_logins import FAILURES, LIMITS
from cell.engines.postgres.roles import Connection
from cell.layout import Site
from cell.runtime import engine_files
from cell.runtime.engine_files import EnginePath

log = structlog.get_logger("cell.postgres")

BEGINS_AFTER_S = 10.0
TRIED_AGAIN_AFTER_S = 600.0
WITHIN_S = 300.0
ENDED_WITHIN_S = 60.0
LOOK_AGAIN_S = 0.2
AT_ONCE_MAX = 1000
"""Numbers of one database, each of which is asked for by itself."""
# What a file system notes may be a little older than what a clock says.
CLOCKS_DIFFER_S = 0.02
REASON_CHARACTERS = 200
NUMBER_MAX = 2**32 - 1
# No temporary ones, and none of the cluster's own, as `PG_VERSION`.
NAME = re.compile(r"([1-9][0-9]{0,9})((?:_(?:fsm|vm|init))?(?:\.[1-9][0-9]{0,5})?)")
DATABASES = """
SELECT oid::bigint, pg_catalog.encode(pg_catalog.textsend(datname::text), 'hex')
FROM pg_catalog.pg_database WHERE datallowconn AND datconnlimit <> -2 ORDER BY oid
"""
# Each transaction has a lock of its own, also one that has written nothing yet.
RUNNING = """
SELECT DISTINCT virtualxid FROM pg_catalog.pg_locks
WHERE locktype = 'virtualxid' AND pid IS DISTINCT FROM pg_catalog.pg_backend_pid()
"""
# This process begins when recovery has ended, also that of a server that goes on after a crash.
# There is nothing to know of a server that recovers, or keeps transactions for later.
STATE = """
SELECT d.oid::bigint, (SELECT extract(epoch FROM least(
    min(a.backend_start) FILTER (WHERE a.backend_type = 'walwriter'),
    min(a.xact_start) FILTER (WHERE a.pid <> pg_catalog.pg_backend_pid())
))::double precision FROM pg_catalog.pg_stat_activity a
    HAVING count(*) FILTER (WHERE a.backend_type = 'walwriter') = 1)
FROM pg_catalog.pg_database d WHERE d.datname = pg_catalog.current_database()
AND NOT pg_catalog.pg_is_in_recovery() AND NOT EXISTS (SELECT FROM pg_catalog.pg_prepared_xacts)
"""
# By the rows themselves, which have 0 for the server's own that can move, and by what is kept of
# those. No index is asked: one may be damaged.
OWNED = """
SELECT relfilenode::bigint FROM pg_catalog.pg_class
UNION SELECT pg_catalog.pg_relation_filenode(oid)::bigint FROM pg_catalog.pg_class
"""
IS_UNOWNED = """
SELECT pg_catalog.pg_filenode_relation(0, %(number)s::bigint::oid) IS NULL
AND NOT EXISTS (SELECT FROM pg_catalog.pg_class WHERE relfilenode = %(number)s::bigint::oid
    OR pg_catalog.pg_relation_filenode(oid) = %(number)s::bigint::oid)
AND NOT pg_catalog.pg_is_in_recovery() AND NOT EXISTS (SELECT FROM pg_catalog.pg_prepared_xacts)
"""
WITHOUT_INDEXES = (
    *("enable_indexscan=off", "enable_indexonlyscan=off", "enable_bitmapscan=off"),
    "max_parallel_workers_per_gather=0",
)

Stamp = tuple[int, int, int, int, int]
Files = Mapping[int, Mapping[str, Stamp]]
"""By number, with what each file was like."""


class _NotNowError(Exception):
    """Something goes on meanwhile; it is tried again."""


@dataclass
class _Start:
    """What the server's file says of its last start or recovery, and when it is looked after."""

    told: tuple[int, int]
    due_at: float | None
    work: asyncio.Task[None] | None = None


class UnownedFiles:
    """For all servers of a driver."""

    def __init__(self) -> None:
        self._starts: dict[Path, _Start] = {}
        self.begins_after_s = BEGINS_AFTER_S

    def look(self, site: Site, login: Login) -> None:
        """Called again and again while the server runs; what is to be done is done beside."""
        found = engine_files.find(site.data / data_folder.LOCK)
        if found is None or not data_folder.takes_logins(site):
            return
        now, told = asyncio.get_running_loop().time(), (found.st_ino, found.st_mtime_ns)
        start = self._starts.get(site.directory)
        if start is not None and start.work is not None and not start.work.done():
            return
        if start is None or start.told != told:
            self._starts[site.directory] = _Start(told, now + self.begins_after_s)
        elif start.due_at is not None and now >= start.due_at:
            start.due_at = None
            start.work = asyncio.create_task(self._clear(site, login, start))

    def forget(self, site: Site) -> None:
        start = self._starts.pop(site.directory, None)
        if start is not None and start.work is not None:
            start.work.cancel()

    async def _clear(self, site: Site, login: Login, start: _Start) -> None:
        if not await clear(site, login):
            start.due_at = asyncio.get_running_loop().time() + TRIED_AGAIN_AFTER_S


async def clear(site: Site, login: Login) -> bool:
    """In all databases that let anybody in; False where something is to be tried again."""
    complete = True
    try:
        async with (
            asyncio.timeout(WITHIN_S),
            connections.administration(site.run, login) as connection,
        ):
            found = await (await connection.execute(DATABASES)).fetchall()
            for oid, encoded in found:
                name = bytes.fromhex(encoded)
                if not roles.is_text(name):
                    continue
                database = _Database(site, login, oid, name.decode())
                try:
                    await database.clear(connection)
                except (*FAILURES, _NotNowError) as error:
                    complete = False
                    _log(site, error, database.name)
    except (*FAILURES, TimeoutError) as error:
        _log(site, error, None)
        return False
    return complete


@dataclass(frozen=True)
class _Database:
    site: Site
    login: Login
    oid: int
    name: str

    @property
    def folder(self) -> EnginePath:
        return self.site.data / "base" / str(self.oid)

    async def clear(self, administration: Connection) -> None:
        # Before it is asked who may have made them.
        found = await asyncio.to_thread(listed, self.folder)
        async with self._opened() as there:
            found = _older(found, await self._begun_at(there))
            owned = {number for (number,) in await (await there.execute(OWNED)).fetchall()}
        if not (found := {number: found[number] for number in found if number not in owned}):
            return
        # Nobody is connected meanwhile: that would be in the way of who copies or drops it.
        await _ended(administration, await _running(administration))
        # The server has nothing to write of them any more, or it could not write them.
        await administration.execute("CHECKPOINT")
        async with self._opened() as there:
            found = _older(found, await self._begun_at(there))
            await self._remove(there, found)

    def _opened(self) -> AbstractAsyncContextManager[Connection]:
        return connections.administration(
            *(self.site.run, self.login, self.name),
            major=int(data_folder.major(self.site) or 0),
            limits=(*LIMITS, *WITHOUT_INDEXES),
        )

    async def _begun_at(self, there: Connection) -> float:
        """Since when there can have been sessions."""
        row = await (await there.execute(STATE)).fetchone()
        if row is None or row[0] != self.oid or row[1] is None:
            raise _NotNowError("the server recovers, or keeps prepared transactions")
        return float(row[1])

    async def _remove(self, there: Connection, found: Files) -> None:
        freed = 0
        for number in sorted(found)[:AT_ONCE_MAX]:
            asked = await there.execute(IS_UNOWNED, {"number": number})
            if await asked.fetchone() == (True,):
                freed += await asyncio.to_thread(remove, self.folder, found[number], str(number))
        if freed:
            log.warning(
                "cell.postgres.unowned_files_removed",
                instance_id=self.site.instance_id,
                database=self.name,
                bytes=freed,
            )
        if len(found) > AT_ONCE_MAX:
            raise _NotNowError("there are more files that no relation owns")


def listed(folder: EnginePath) -> Files:
    """The files that relations can have, and what each is like now.

    Only those of a first one with content: an empty one the server keeps for its next checkpoint,
    and without it the number may be given to another relation at any moment.
    """
    found: dict[int, dict[str, Stamp]] = {}
    with engine_files.held(folder) as descriptor:
        for name in engine_files.listed(descriptor)[1]:
            matched = NAME.fullmatch(name)
            if matched and int(matched[1]) <= NUMBER_MAX:
                stamp = _stamp(name, descriptor)
                if stamp is not None:
                    found.setdefault(int(matched[1]), {})[name] = stamp
    return {
        number: files
        for number, files in found.items()
        if str(number) in files and files[str(number)][2]
    }


def remove(folder: EnginePath, files: Mapping[str, Stamp], first: str) -> int:
    """Those that are as they were, the first at the end; how many bytes that frees."""
    freed = 0
    with engine_files.held(folder) as descriptor:
        if _stamp(first, descriptor) != files[first]:
            return 0
        for name in sorted(files, key=lambda name: (name == first, name)):
            if _stamp(name, descriptor) != files[name]:
                break
            os.unlink(name, dir_fd=descriptor)
            freed += files[name][2]
    return freed


def _stamp(name: str, descriptor: int) -> Stamp | None:
    """None for what is no ordinary file, or has a second name."""
    try:
        found = os.stat(name, dir_fd=descriptor, follow_symlinks=False)
    except FileNotFoundError:
        return None
    if not stat.S_ISREG(found.st_mode) or found.st_nlink != 1:
        return None
    return found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns


def _older(files: Files, begun_at: float) -> Files:
    """Those of which nothing was written since."""
    limit_ns = int((begun_at - CLOCKS_DIFFER_S) * 10**9)
    return {
        number: each
        for number, each in files.items()
        if all(max(stamp[3:]) < limit_ns for stamp in each.values())
    }


async def _running(connection: Connection) -> set[str]:
    return {each for (each,) in await (await connection.execute(RUNNING)).fetchall()}


async def _ended(connection: Connection, running: set[str]) -> None:
    """Waits for those transactions."""
    until = asyncio.get_running_loop().time() + ENDED_WITHIN_S
    while running := running & await _running(connection):
        if asyncio.get_running_loop().time() > until:
            raise _NotNowError("a transaction goes on that may have made files")
        await asyncio.sleep(LOOK_AGAIN_S)


def _log(site: Site, error: BaseException, database: str | None) -> None:
    reason = str(error)[:REASON_CHARACTERS] or type(error).__name__
    log.warning(
        "cell.postgres.unowned_files_kept",
        instance_id=site.instance_id,
        database=database,
        reason=reason,
    )
