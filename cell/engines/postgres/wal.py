"""The WAL of a server that runs: held back in a replication slot, received by pg_receivewal."""

import asyncio
import struct
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import psycopg

from cell.engines.driver import EngineError, Login
from cell.engines.postgres import configuration, connections, data_folder, server
from cell.engines.postgres.connections import NotRunningError
from cell.engines.postgres.installation import Installation
from cell.engines.wal_sources import WalLook
from cell.layout import Site
from cell.runtime import engine_files
from cell.runtime.attendants import Attendant
from cell.runtime.confinement import Mount
from cell.runtime.engine_folders import INSIDE
from cell.runtime.host import Host

SLOTS = "menagerie_wal_%"
SPOOL = INSIDE / "wal"
LOG = "wal.log"
RECEIVER = "pg_receivewal"
# How far it is, at least so often.
STATUS_EVERY_S = 1
CONTROL = "global/pg_control"
# The beginning of what all versions that we run write there: state, padding, time, last checkpoint.
_CONTROL = struct.Struct("<16xI4x8xQ")
_SHUT_DOWN = 1
LOOK = """
SELECT extract(epoch FROM pg_catalog.clock_timestamp())::float8,
    (pg_catalog.pg_current_wal_insert_lsn() - '0/0'::pg_catalog.pg_lsn)::int8,
    pg_catalog.pg_walfile_name(pg_catalog.pg_current_wal_insert_lsn()),
    (SELECT system_identifier::text FROM pg_catalog.pg_control_system()),
    s.wal_status, (s.restart_lsn - '0/0'::pg_catalog.pg_lsn)::int8,
    (r.write_lsn - '0/0'::pg_catalog.pg_lsn)::int8
FROM (SELECT 1) AS one
LEFT JOIN pg_catalog.pg_replication_slots s ON s.slot_name = %s
LEFT JOIN pg_catalog.pg_stat_replication r ON r.pid = s.active_pid
"""
DROP = """
SELECT pg_catalog.pg_drop_replication_slot(slot_name) FROM pg_catalog.pg_replication_slots
WHERE slot_name LIKE %s AND slot_name <> %s AND NOT active
"""
OPEN = """
SELECT pg_catalog.pg_create_physical_replication_slot(%s, true)
WHERE NOT EXISTS (SELECT FROM pg_catalog.pg_replication_slots WHERE slot_name = %s)
"""
# By itself a slot begins at the last checkpoint, which may be gigabytes ago.
ADVANCE = """
SELECT pg_catalog.pg_replication_slot_advance(%s, pg_catalog.pg_current_wal_flush_lsn())
"""
# A page begins with a header, which is not written before something follows it.
PAGE_BYTES = 8192
HEADERS = (24, 40)


class WalReplication:
    def __init__(
        self,
        host: Host,
        installation: Callable[[str, Site], Awaitable[Installation]],
        superuser: Callable[[Site], Login],
    ) -> None:
        self._host = host
        self._installation = installation
        self._superuser = superuser

    async def open(self, site: Site, slot: str) -> WalLook:
        installation = await self._installation(data_folder.major(site) or "", site)
        if not (installation.source.binaries / RECEIVER).exists():
            # Nothing is to be held back that nobody receives.
            raise EngineError(f"{RECEIVER} is not installed for PostgreSQL on the cell's machine")
        await self._run(site, (DROP, (SLOTS, slot)), (OPEN, (slot, slot)), (ADVANCE, (slot,)))
        return await self.look(site, slot)

    async def close(self, site: Site) -> None:
        await self._run(site, (DROP, (SLOTS, "")))

    async def look(self, site: Site, slot: str) -> WalLook:
        row = await self._run(site, (LOOK, (slot,)))
        assert row is not None
        at, written, segment, system_id, status, restart, received = row
        return WalLook(
            at=at,
            written=_without_header(written),
            received=received,
            timeline=int(segment[:8], 16),
            system_id=system_id,
            slot=status,
            restart=restart,
            held_bytes=0 if restart is None else max(0, written - restart),
        )

    async def receive(self, site: Site, slot: str, spool: Path) -> Attendant:
        installation = await self._installation(data_folder.major(site) or "", site)
        await asyncio.to_thread(self._admit, site)
        login = self._superuser(site)
        hidden = self._host.hides_files
        argv = [
            *(installation.program(RECEIVER), "-D", str(SPOOL if hidden else spool)),
            *("-S", slot, "-s", str(STATUS_EVERY_S), "--no-loop", "--no-password"),
            *("-h", str(self._host.view(site).run), "-p", str(configuration.PORT)),
            *("-U", login.username),
        ]
        mounts = [
            Mount(site.run.outside.resolve(), INSIDE / "run", writable=False),
            Mount(spool, SPOOL, writable=True),
            *installation.mounts,
        ]
        environment = {"PGPASSWORD": login.password, "PGCONNECT_TIMEOUT": "10"}
        given = (site, argv, environment, mounts, site.log.parent / LOG)
        return await asyncio.to_thread(self._host.attendants.start, *given)

    def left_at(self, site: Site) -> int | None:
        try:
            content = engine_files.read(site.data / CONTROL, _CONTROL.size)
            state, checkpoint = _CONTROL.unpack(content)
        except (OSError, struct.error):
            return None
        return checkpoint if state == _SHUT_DOWN else None

    def _admit(self, site: Site) -> None:
        """A server that an earlier version started does not let it in."""
        path = site.configuration / configuration.ACCESS
        if path.read_bytes() == configuration.ACCESS_CONTENT:
            return
        server.write(self._host, site, configuration.ACCESS, configuration.ACCESS_CONTENT)
        if (process := self._host.find(site)) is not None:
            server.reload(process)

    async def _run(self, site: Site, *statements: tuple[str, tuple[Any, ...]]) -> Any:
        """Answers a row of the last one."""
        try:
            async with connections.administration(site.run, self._superuser(site)) as connection:
                for statement, values in statements:
                    found = await connection.execute(statement.encode(), values)
                return await found.fetchone()
        except (NotRunningError, psycopg.Error) as error:
            raise EngineError(f"the server does not tell of its WAL: {error}") from error


def _without_header(position: int) -> int:
    """Of where the next record goes, the end of what was written."""
    rest = position % PAGE_BYTES
    return position - rest if rest in HEADERS else position
