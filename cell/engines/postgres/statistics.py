"""What the planner knows of tables, counted anew after an upgrade: while the owner's limits hold.

`ANALYZE` calls the owner's functions, in indexes and statistics. So it runs in the server that its
owner uses, one table after the other, and for so long at most, whatever a function catches.
"""

import asyncio
import contextlib
import time
from pathlib import Path

import psycopg
import structlog
from psycopg import sql

from cell.engines.driver import Login
from cell.engines.postgres import connections
from cell.engines.postgres.autovacuum import HELD_FOR_S
from cell.engines.postgres.connections import NotRunningError, PostgresHeldUpError
from cell.layout import Site

log = structlog.get_logger("cell.postgres")

OWED = "statistics.owed"
ALL_WITHIN_S = 900.0
TABLE_WITHIN_MS = 120_000
ENDS_WITHIN_S = 5.0
LOOK_AGAIN_S = 0.1
REASON_CHARACTERS = 500
# It reads as slowly as autovacuum does, and its session ends soon after the cell has.
SETTINGS = (
    f"SET statement_timeout = {TABLE_WITHIN_MS}",
    "SET vacuum_cost_delay = '2ms'",
    "SET client_connection_check_interval = '1s'",
)
DATABASES = (
    "SELECT datname FROM pg_catalog.pg_database"
    " WHERE datallowconn AND NOT datistemplate AND datconnlimit <> -2"
)
# pg_upgrade takes statistics along from 18 on, but those that the owner created. The small first.
UNCOUNTED = """
SELECT nspname, relname FROM pg_catalog.pg_class AS c
JOIN pg_catalog.pg_namespace AS n ON n.oid = c.relnamespace
WHERE relkind IN ('r', 'm', 'p') AND relpersistence <> 't' AND (reltuples < 0 OR EXISTS (
    SELECT FROM pg_catalog.pg_statistic_ext AS s WHERE s.stxrelid = c.oid AND NOT EXISTS (
        SELECT FROM pg_catalog.pg_statistic_ext_data AS d WHERE d.stxoid = s.oid)))
ORDER BY relkind = 'p', pg_catalog.pg_relation_size(c.oid)
"""
# Nobody waits for a table that somebody else has locked.
COUNT = "ANALYZE (SKIP_LOCKED) {}"
END = "SELECT pg_catalog.pg_terminate_backend(%s)"


def owe(site: Site) -> None:
    """Of the site's data; kept until it was done, or took too long."""
    (site.directory / OWED).touch(mode=0o600)


class Counts:
    """One of each server at a time, until the server or a credential ends."""

    def __init__(self) -> None:
        self._counting: dict[Path, _Count] = {}
        # Until then the owner can drop what a former holder left.
        self.begins_after_s = HELD_FOR_S
        self.all_within_s = ALL_WITHIN_S

    async def run(self, site: Site, superuser: Login, major: int) -> None:
        """What was owed; one that was ended is begun anew with the server's next start."""
        owed = site.directory / OWED
        if not owed.exists():
            return
        await asyncio.sleep(self.begins_after_s)
        count = self._counting[site.directory] = _Count(site, superuser, major)
        try:
            done, _ = await asyncio.wait({count.work}, timeout=self.all_within_s)
            if not done:
                log.warning("cell.postgres.not_analysed", instance_id=site.instance_id)
            if not done or count.is_complete:
                owed.unlink(missing_ok=True)
        finally:
            self._counting.pop(site.directory, None)
            with contextlib.suppress(PostgresHeldUpError):
                await asyncio.shield(count.end())

    async def end(self, site: Site) -> None:
        """HeldUpError where what runs does not end."""
        if (count := self._counting.get(site.directory)) is not None:
            await count.end()


class _Count:
    def __init__(self, site: Site, superuser: Login, major: int) -> None:
        self._site = site
        self._superuser = superuser
        self._major = major
        self._pid: int | None = None
        self._ended = False
        self.work = asyncio.create_task(self._count_all())

    @property
    def is_complete(self) -> bool:
        return not (self._ended or self.work.cancelled() or self.work.exception())

    async def end(self) -> None:
        """By the server: a function may catch that its statement is cancelled."""
        self._ended = True
        deadline = time.monotonic() + ENDS_WITHIN_S
        while not self.work.done():
            with contextlib.suppress(psycopg.Error, NotRunningError):
                async with connections.administration(self._site.run, self._superuser) as mine:
                    await mine.execute(END, [self._pid])
            await asyncio.wait({self.work}, timeout=LOOK_AGAIN_S)
            if time.monotonic() > deadline:
                raise PostgresHeldUpError("a function that ANALYZE calls does not end")

    async def _count_all(self) -> None:
        async with connections.administration(self._site.run, self._superuser) as connection:
            found = await (await connection.execute(DATABASES)).fetchall()
        for (database,) in found:
            try:
                await self._count(database)
            except psycopg.Error as error:
                self._note(error)

    async def _count(self, database: str) -> None:
        if self._ended:
            return
        # That of the database before is nobody's, or another's.
        self._pid = None
        target = (self._site.run, self._superuser, database)
        async with connections.administration(*target, major=self._major) as connection:
            self._pid = connection.info.backend_pid
            for setting in SETTINGS:
                await connection.execute(setting)
            for names in await (await connection.execute(UNCOUNTED)).fetchall():
                if self._ended:
                    return
                try:
                    await connection.execute(sql.SQL(COUNT).format(sql.Identifier(*names)))
                except psycopg.Error as error:
                    if connection.closed:
                        raise
                    self._note(error)

    def _note(self, error: psycopg.Error) -> None:
        """Code of indexes failed, or took too long; autovacuum tries it when the table changes."""
        reason = str(error)[:REASON_CHARACTERS]
        instance_id = self._site.instance_id
        log.warning("cell.postgres.not_analysed", instance_id=instance_id, reason=reason)
