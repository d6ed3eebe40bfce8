"""What happens at the storage limit: writers wait for a rewrite of the log, or may only free.

The log is what fills the storage: a rewrite makes it as short as the data, but a server that
writes as fast as it can leaves no time of its CPU for one.
"""

import asyncio
import contextlib
import math
import time
from collections import defaultdict
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from typing import Self

import structlog

from cell.engines.driver import Room
from cell.engines.resp import files
from cell.engines.resp.configuration import ONLY_FREEING, TENANT_RULES, USERNAME
from cell.engines.resp.connection import RefusalError, RespConnection
from cell.layout import Site
from cell.runtime import log_files
from cell.timestamps import moment

log = structlog.get_logger("cell.resp")

# It is there while writes are refused.
FULL = "full"
# So that it does not go back and forth at the limit.
LIFTED_BELOW = 0.95
# Below it, a log of twice its length leaves room: the server's own rule is enough.
WATCHED_ABOVE = 1 / 3
# Of the limit: what a rewrite must save, lest it is done all the time.
GROWN_MIN = 1 / 16
# Renewed at each look; without a cell it ends.
PAUSE_MS = 10_000
PAUSED_MAX_S = 60.0
# The server's own rule, in percent of the data: at twice its length, and from 64 MiB on.
ALONE_PERCENT = 100
ALONE_MIN_BYTES = 64 * 2**20
# Between two rewrites.
REST_S = 5.0
REFUSED = (
    "the storage is full: commands that add data are refused until data is removed, or until there "
    "is more storage"
)


@dataclass(frozen=True)
class LogState:
    """As the server tells of it."""

    bytes: int
    base_bytes: int
    is_rewritten: bool
    rewrites: int
    data_bytes: int
    """Of memory, which it takes more of than of the disk."""

    @classmethod
    async def of(cls, connection: RespConnection) -> Self:
        told = await connection.info("persistence", "memory")
        return cls(
            bytes=int(told["aof_current_size"]),
            base_bytes=int(told["aof_base_size"]),
            is_rewritten="1" in (told["aof_rewrite_in_progress"], told["aof_rewrite_scheduled"]),
            rewrites=int(told["aof_rewrites"]),
            data_bytes=int(told["used_memory"]),
        )

    @property
    def grown_bytes(self) -> int:
        return self.bytes - self.base_bytes

    def fits(self, room: Room) -> bool:
        """Whether there is room for its rewrite beside it."""
        return room.used_bytes + min(self.bytes, self.data_bytes) <= room.ceiling_bytes

    def fits_alone(self, room: Room) -> bool:
        """Whether there will be, when the server begins one by its own rule."""
        then_bytes = max(2 * self.base_bytes, ALONE_MIN_BYTES)
        return then_bytes + min(then_bytes, self.data_bytes) <= room.ceiling_bytes


@dataclass
class _Seen:
    """Of one instance, as long as this cell runs."""

    rewrites_alone: bool | None = None
    used_bytes: int = -1
    rewritten_at: float = -math.inf
    held_since: float | None = None
    rewrites: int | None = None
    """How many there were before the one that writers wait for."""


class Writers:
    """Holds those of each instance back."""

    def __init__(
        self, connected: Callable[[Site], AbstractAsyncContextManager[RespConnection]]
    ) -> None:
        self._connected = connected
        self._seen: defaultdict[str, _Seen] = defaultdict(_Seen)
        self._locks: defaultdict[str, asyncio.Lock] = defaultdict(asyncio.Lock)

    def forget(self, site: Site) -> None:
        self._seen.pop(site.instance_id, None)
        self._locks.pop(site.instance_id, None)

    def started(self, site: Site) -> None:
        """A server that was started anew keeps nobody waiting."""
        self._seen.pop(site.instance_id, None)

    def lock(self, site: Site) -> asyncio.Lock:
        """For whoever tells the engine the rules that are now."""
        return self._locks[site.instance_id]

    def rules(self, site: Site) -> tuple[str, ...]:
        """What the tenant may do now."""
        return (*TENANT_RULES, *ONLY_FREEING) if self._refused(site) else TENANT_RULES

    def wait(self, site: Site) -> bool:
        """Whether commands that write are not answered for now, the administrator's neither."""
        return self._seen[site.instance_id].held_since is not None

    def refuse(self, site: Site) -> None:
        """From the next start on."""
        (site.configuration / FULL).touch(mode=0o600)

    async def look(self, site: Site, room: Room) -> None:
        seen, refused = self._seen[site.instance_id], self._refused(site)
        is_kept = refused or self.wait(site)
        is_small = room.used_bytes <= room.limit_bytes * WATCHED_ABOVE
        is_known = seen.rewrites_alone is not None and not is_kept
        if is_known and (is_small or room.used_bytes == seen.used_bytes):
            return
        # A snapshot, or a rewrite that goes well, must keep nobody from writing.
        used_bytes = room.used_bytes - await asyncio.to_thread(files.passing_bytes, site.data)
        is_full = used_bytes > room.limit_bytes * (LIFTED_BELOW if is_kept else 1)
        async with self._connected(site) as connection:
            now = await LogState.of(connection)
            await self._let_rewrite(connection, seen, alone=now.fits_alone(room))
            if now.is_rewritten:
                seen.rewritten_at = time.monotonic()
            if not is_full:
                await self._when_below(connection, site, now, room)
            elif refused:
                if now.grown_bytes > 0:
                    await self._rewrite(connection, site, now, room)
            elif not await self._hold(connection, site, now, room):
                await self._set(connection, site, full=True)
        seen.used_bytes = room.used_bytes

    async def _let_rewrite(self, connection: RespConnection, seen: _Seen, *, alone: bool) -> None:
        """By its own rule or not: of one without room the server ended, and began anew after it."""
        if seen.rewrites_alone is not alone:
            percent = str(ALONE_PERCENT if alone else 0)
            await connection.ask("CONFIG", "SET", "auto-aof-rewrite-percentage", percent)
            seen.rewrites_alone = alone

    async def _when_below(
        self, connection: RespConnection, site: Site, now: LogState, room: Room
    ) -> None:
        if self._refused(site):
            await self._set(connection, site, full=False)
        elif self.wait(site):
            await self._release(connection, site)
        # Half of what is left is for what is written until the rewrite has ended.
        left_bytes = (room.limit_bytes - now.base_bytes) / 2
        if now.grown_bytes > max(left_bytes, room.limit_bytes * GROWN_MIN):
            await self._rewrite(connection, site, now, room)

    async def _hold(
        self, connection: RespConnection, site: Site, now: LogState, room: Room
    ) -> bool:
        """Has writers wait; False where that does not help, or did not for too long."""
        seen = self._seen[site.instance_id]
        if seen.held_since is None:
            seen.held_since, seen.rewrites = time.monotonic(), None
            log.warning("cell.writers_wait", instance_id=site.instance_id)
        await connection.ask("CLIENT", "PAUSE", str(PAUSE_MS), "WRITE")
        if seen.rewrites is None:
            if not now.is_rewritten:
                if not now.fits(room):
                    return False
                seen.rewrites = now.rewrites
                await _begin(connection, site)
        elif not now.is_rewritten and now.rewrites > seen.rewrites:
            # Where this is short enough, the former files are being removed.
            return now.bytes <= room.limit_bytes * LIFTED_BELOW
        return time.monotonic() - seen.held_since < PAUSED_MAX_S

    async def _release(self, connection: RespConnection, site: Site) -> None:
        await connection.ask("CLIENT", "UNPAUSE")
        self._seen[site.instance_id].held_since = None

    async def _set(self, connection: RespConnection, site: Site, *, full: bool) -> None:
        """Who waits is then refused, or not."""
        async with self.lock(site):
            if full:
                self.refuse(site)
            else:
                (site.configuration / FULL).unlink(missing_ok=True)
            await connection.ask("ACL", "SETUSER", USERNAME, *self.rules(site))
        await self._release(connection, site)
        event = "cell.storage_full" if full else "cell.storage_freed"
        log.warning(event, instance_id=site.instance_id)
        if full:
            log_files.write(site.log, f"{moment(time.time())} menagerie: {REFUSED}")

    async def _rewrite(
        self, connection: RespConnection, site: Site, now: LogState, room: Room
    ) -> None:
        rested_s = time.monotonic() - self._seen[site.instance_id].rewritten_at
        if rested_s > REST_S and not now.is_rewritten and now.fits(room):
            await _begin(connection, site)

    def _refused(self, site: Site) -> bool:
        return (site.configuration / FULL).exists()


async def _begin(connection: RespConnection, site: Site) -> None:
    log.info("cell.log_rewritten", instance_id=site.instance_id)
    # The server may have begun one by itself.
    with contextlib.suppress(RefusalError):
        await connection.ask("BGREWRITEAOF")
