"""What happens at the storage limit: transactions only read, unless somebody asks to write.

Those that write already are ended: one that loads a gigabyte would go on until the ceiling, and
what it has written stays in the files, so that the server would be too large to be started.
"""

import asyncio
import signal
import threading
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import psycopg
import structlog

from cell.engines.driver import Login, Room
from cell.engines.postgres import configuration, connections, data_folder, roles, server
from cell.engines.postgres.connections import NotRunningError
from cell.engines.storage_use import StorageUse
from cell.layout import Site
from cell.runtime.host import Host
from cell.runtime.process import Process
from cell.specification import ceiling_bytes

log = structlog.get_logger("cell.postgres")

READ_ONLY = b"default_transaction_read_only = 'on'\n"
# So that it does not go back and forth at the limit.
LIFTED_BELOW = 0.95
# As fast as a disk may be written to.
BYTES_PER_S = 500 * 10**6
# A cluster has a thousand files, and looking at each of them every second would be work.
MEASURE_EVERY_S = 10.0
READ_WITHIN_S: Final = 1.0
"""Until sessions have read that they are to read only, where they are between transactions."""
SWEPT_FOR_S: Final = 10.0
CHECKPOINT_EVERY_S = 30.0
CHECKPOINT_WITHIN_S = 300.0
# A session that was told to end may be rolling back.
END_WRITERS = """
SELECT count(pg_catalog.pg_terminate_backend(pid)) FROM pg_catalog.pg_stat_activity
WHERE backend_xid IS NOT NULL AND backend_type = 'client backend'
    AND usename IS DISTINCT FROM %s AND xact_start < pg_catalog.to_timestamp(%s)
"""


@dataclass(frozen=True)
class _Checkpoint:
    """The last one of a server at its limit, and what it used before."""

    used_bytes: int
    began_at: float

    def is_due(self, used_bytes: int, now: float) -> bool:
        """Where nothing has changed, another would change nothing."""
        return used_bytes != self.used_bytes and now >= self.began_at + CHECKPOINT_EVERY_S


class PostgresStorageLimit:
    """Sets and lifts it, for all servers of a driver."""

    def __init__(self, host: Host, writing: threading.Lock) -> None:
        """`writing` is held while a server's configuration is written."""
        self._host = host
        self._writing = writing
        self._use = StorageUse()
        # When transactions began to only read.
        self._held_at: dict[Path, float] = {}
        self._checkpoints: dict[Path, _Checkpoint] = {}

    def look(self, site: Site, process: Process | None) -> int:
        """The bytes that it uses, as last counted."""

        def wait_s(used_bytes: int) -> float:
            return min(MEASURE_EVERY_S, fills_in_s(site, used_bytes))

        used_bytes, counted = self._use.count(site, wait_s)
        if counted and process is not None:
            with self._writing:
                held = hold(self._host, site, process, used_bytes)
            if held:
                self._held_at[site.directory] = time.time()
            elif held is not None:
                self._held_at.pop(site.directory, None)
        return used_bytes

    def forget(self, site: Site) -> None:
        """It is to be counted anew."""
        self._use.forget(site)
        self._checkpoints.pop(site.directory, None)

    async def end_writers(self, site: Site, login: Login) -> None:
        """Of the transactions that began before; one that was begun since asked to write."""
        held_at = self._held_at.get(site.directory)
        if held_at is None:
            return
        try:
            async with connections.administration(site.run, login) as connection:
                before = min(time.time(), held_at + READ_WITHIN_S)
                found = await connection.execute(END_WRITERS, [roles.SUPERUSER, before])
                ended = await found.fetchone()
        except (psycopg.Error, NotRunningError, OSError) as error:
            log.warning(
                "cell.postgres.writers_go_on", instance_id=site.instance_id, reason=str(error)
            )
            return
        if ended is not None and ended[0]:
            log.warning("cell.writers_ended", instance_id=site.instance_id, sessions=ended[0])
        elif time.time() > held_at + SWEPT_FOR_S:
            self._held_at.pop(site.directory, None)

    async def make_room(self, site: Site, login: Login, room: Room) -> None:
        """At the limit what is dropped, and the log of it, are removed soon, by a checkpoint.

        The server's own takes its time, minutes, where nobody writes any more.
        """
        if room.used_bytes <= room.limit_bytes * LIFTED_BELOW:
            return
        last, now = self._checkpoints.get(site.directory), time.monotonic()
        if (last is not None and not last.is_due(room.used_bytes, now)) or not is_held(site):
            return
        self._checkpoints[site.directory] = _Checkpoint(room.used_bytes, now)
        try:
            async with (
                asyncio.timeout(CHECKPOINT_WITHIN_S),
                connections.administration(site.run, login) as connection,
            ):
                await connection.execute("CHECKPOINT")
        except (psycopg.Error, NotRunningError, TimeoutError, OSError) as error:
            log.warning(
                "cell.postgres.no_checkpoint", instance_id=site.instance_id, reason=str(error)
            )

    def refuse_writes(self, site: Site) -> None:
        """Of a server that does not run: the first look at it makes it so."""
        self._use.forget(site)


def fills_in_s(site: Site, used_bytes: int) -> float:
    """How soon it could reach the ceiling, and must be measured again."""
    try:
        limit_bytes = configuration.storage_bytes(
            (site.configuration / configuration.FILE).read_bytes()
        )
    except FileNotFoundError:
        limit_bytes = None
    if limit_bytes is None:
        return 0.0
    return max(0.0, (ceiling_bytes(limit_bytes) - used_bytes) / BYTES_PER_S)


def is_held(site: Site) -> bool:
    """Whether transactions only read, but where somebody asks to write."""
    try:
        content = (site.configuration / configuration.FILE).read_bytes()
    except FileNotFoundError:
        return False
    return content.endswith(READ_ONLY)


def hold(host: Host, site: Site, process: Process, used_bytes: int) -> bool | None:
    """Sets or lifts it; who makes room says so in his session, and those who only write do not.

    True where it was set now, False where it was lifted, None where all stays as it was.

    The file is the only state: a server that is started anew is looked at again.
    """
    if not data_folder.takes_logins(site):
        return None
    content = (site.configuration / configuration.FILE).read_bytes()
    limit_bytes = configuration.storage_bytes(content)
    held = content.endswith(READ_ONLY)
    if limit_bytes is None or held == (used_bytes > limit_bytes * (LIFTED_BELOW if held else 1)):
        return None
    wanted = content.removesuffix(READ_ONLY) if held else content + READ_ONLY
    server.write(host, site, configuration.FILE, wanted)
    process.signal(signal.SIGHUP)
    event = "cell.storage_freed" if held else "cell.storage_full"
    log.warning(event, instance_id=site.instance_id, used_bytes=used_bytes)
    return not held
