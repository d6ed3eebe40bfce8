"""A backup is verified: read back from the store, and an engine started with what it holds.

That engine is none of the instance's: it has an id, a user and folders of its own, no route leads
to it and its owner has no login there. It has the size of the instance, and takes the places of
its tenant.
"""

import asyncio
import contextlib
import secrets
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import replace
from pathlib import Path
from typing import TypeVar

import structlog
from ulid import ULID

from cell.backups.lineage import Lineage
from cell.backups.manifest import Manifest, Verification
from cell.backups.repository import Repository
from cell.engines.contents import Contents
from cell.engines.driver import ChecksFiles, EngineError, Login
from cell.engines.packed_snapshots import archive_of
from cell.instances import bounds, starting
from cell.instances.beginnings import UNPACKED
from cell.instances.copy_slots import CopySlot
from cell.instances.hosted import BackupProgress, HostedInstance
from cell.instances.pools import Pools
from cell.instances.reasons import for_owner
from cell.instances.records import InstanceRecord
from cell.instances.start_slots import StartSlot
from cell.instances.uids import Uids
from cell.layout import Layout
from cell.runtime import budget, engine_files, priority
from cell.runtime.cpus import SCRATCH
from cell.runtime.host import Host
from cell.runtime.own_threads import in_own_thread
from cell.runtime.to_its_end import to_its_end
from cell.settings import CellSettings

log = structlog.get_logger("cell.verification")

NOTICE_CHARACTERS = 500
VERIFIED = "verified"
FILLED = "filled"
T = TypeVar("T")


class ScratchInstance(HostedInstance):
    """What a backup of another instance is started in, and ends with it."""

    def __init__(self, record: InstanceRecord, layout: Layout, source: HostedInstance) -> None:
        super().__init__(record, layout.site(record.instance_id, record.uid), source.driver)
        self.source = source
        self.login = Login(source.driver.username(1), secrets.token_urlsafe(32))
        # Whether a login worked.
        self.has_begun = False
        # What the owner is told although it did.
        self.notice: str | None = None

    def why_work_ends(self) -> str | None:
        return self.source.why_backup_ends()


class Verifier:
    def __init__(
        self,
        settings: CellSettings,
        layout: Layout,
        host: Host,
        pools: Pools,
        uids: Uids,
        repository: Repository,
    ) -> None:
        self._settings = settings
        self._layout = layout
        self._host = host
        self._pools = pools
        self._uids = uids
        self._repository = repository
        # Of those that left nothing; else each backup would take another uid for good.
        self._idle_uids: list[int] = []

    async def verify(
        self, source: HostedInstance, made: Manifest, progress: BackupProgress
    ) -> tuple[Verification, tuple[str, ...]]:
        """How it was verified, and the extensions that were found.

        Raises EngineError, StoreError or DamagedError where it does not stand up to that.
        """
        whole = await self._repository.lineage_written(made)
        stream_bytes = made.content.stream_bytes
        progress.begin("verifying", stream_bytes)
        if made.size_bytes > self._settings.backup_verify_bytes_max or source.status == "failed":
            # What the instance's own engine does not start with starts no other either. Without a
            # backup it could not be changed, as by more memory, so that it does.
            slot = CopySlot(self._pools.copies, self._host, source)
            async with bounds.in_turn_unlocked(source, slot):
                with budget.limit(stream_bytes, ended=source.why_backup_ends):
                    await self._repository.check(made, progress.add)
            digest = made.content.stream_sha256
            return Verification("checksums", time.time(), digest), ()
        progress.begin("verifying", whole.stream_bytes)
        async with self._scratch(source) as scratch:
            contents = await self._started(scratch, whole, progress)
        if isinstance(contents, str):
            digest = made.content.stream_sha256
            return Verification("checksums", time.time(), digest, contents), ()
        verification = Verification("restored", time.time(), contents.digest, scratch.notice)
        return verification, contents.extensions

    async def _started(
        self, scratch: ScratchInstance, whole: Lineage, progress: BackupProgress
    ) -> Contents | str:
        """What the engine read, or why it could not; before a change also why it did not start.

        The instance's own engine does no better, and whoever left one table that cannot be read
        would keep all the others from being backed up, and the instance from being changed.
        """
        driver, site, made = scratch.driver, scratch.site, whole.newest
        bytes_max = max(scratch.ceiling_bytes, whole.stream_bytes)
        limits = (bytes_max, self._settings.backup_verify_timeout_s)
        slot = CopySlot(self._pools.copies, self._host, scratch)
        async with (
            bounds.in_turn_unlocked(scratch.source, slot),
            bounds.bounded(self._host, scratch, VERIFIED, *limits),
        ):
            site.make(self._host.owner(site))
            folder = site.directory / UNPACKED
            with budget.limit(bytes_max):
                archive = archive_of(driver)
                await self._repository.unpack_written(whole, folder, progress.add, archive)
            with budget.limit(bytes_max):
                await driver.restore(site, folder)
            await in_own_thread(engine_files.remove, folder)
            try:
                await self._begin(scratch)
                return await driver.examine(site, scratch.login)
            except EngineError as error:
                if (why := scratch.why_work_ends()) is not None:
                    raise EngineError(why) from error
                if not scratch.has_begun and made.kind != "pre_change":
                    raise
                log.warning("cell.backup_not_read", instance_id=made.instance_id, reason=str(error))
                return for_owner(str(error))[:NOTICE_CHARACTERS]

    async def contents_of(self, source: HostedInstance, folder: Path) -> Contents:
        """What an engine of the instance's size reads in a copy that is none of a backup's.

        Raises EngineError where it does not start with it, or cannot read all.
        """
        within_s = self._settings.backup_verify_timeout_s
        async with self._tried(source, VERIFIED, within_s) as scratch:
            with budget.limit(scratch.ceiling_bytes):
                await scratch.driver.restore(scratch.site, folder)
            await self._begin(scratch)
            return await scratch.driver.examine(scratch.site, scratch.login)

    async def filled(
        self,
        source: HostedInstance,
        fill: Callable[[ScratchInstance], Awaitable[None]],
        target: Path,
    ) -> Contents:
        """What a new engine of the instance's size has after that, with a copy in `target`."""
        async with self._tried(source, FILLED, self._settings.upgrade_timeout_s) as scratch:
            await self._begin(scratch)
            await fill(scratch)
            contents = await scratch.driver.examine(scratch.site, scratch.login)
            await self._stop(scratch)
            with budget.limit(scratch.ceiling_bytes):
                await scratch.driver.snapshot(scratch.site, None, scratch.login, target)
            return contents

    async def condensed(
        self,
        source: HostedInstance,
        folder: Path,
        look: Callable[[ScratchInstance], Awaitable[T]],
        target: Path,
    ) -> T:
        """What `look` says of an engine that has read `folder`; what it holds then is in `target`.

        EngineError where it does not read all of it.
        """

        async def put(scratch: ScratchInstance) -> None:
            with budget.limit(scratch.ceiling_bytes):
                await scratch.driver.restore(scratch.site, folder)

        return await self.begun_with(source, put, look, target)

    async def begun_with(
        self,
        source: HostedInstance,
        put: Callable[[ScratchInstance], Awaitable[None]],
        look: Callable[[ScratchInstance], Awaitable[T]],
        target: Path,
    ) -> T:
        """As `condensed`, of an engine that starts with what `put` has left in its folder."""
        async with self._tried(source, FILLED, self._settings.upgrade_timeout_s) as scratch:
            await put(scratch)
            await self._begin(scratch)
            if scratch.notice is not None:
                raise EngineError(scratch.notice)
            seen = await look(scratch)
            with budget.limit(scratch.ceiling_bytes):
                await scratch.driver.snapshot(scratch.site, scratch.process, scratch.login, target)
            return seen

    @contextlib.asynccontextmanager
    async def _tried(
        self, source: HostedInstance, work: str, within_s: float
    ) -> AsyncIterator[ScratchInstance]:
        """In a place for trials of its tenant's, and within bounds."""
        async with self._scratch(source) as scratch:
            slot = CopySlot(self._pools.trials, self._host, scratch)
            async with (
                bounds.in_turn_unlocked(source, slot),
                bounds.bounded(self._host, scratch, work, scratch.ceiling_bytes, within_s),
            ):
                scratch.site.make(self._host.owner(scratch.site))
                yield scratch

    async def _begin(self, scratch: ScratchInstance) -> None:
        """Returns when the login works."""
        driver, site = scratch.driver, scratch.site
        if isinstance(driver, ChecksFiles):
            await driver.check_files(site)
        await driver.set_credentials(site, [scratch.login])
        await driver.provision(site, scratch.record.spec)
        await asyncio.to_thread(site.empty_run)
        # As the instance itself would: what its owner left in it does not keep it from backups.
        scratch.notice = await starting.sparing(
            scratch, lambda _, once_more: self._start(scratch, once_more)
        )
        scratch.has_begun = True

    async def _start(self, scratch: ScratchInstance, once_more: bool) -> None:
        spec = scratch.record.spec
        async with StartSlot(self._pools, self._host, scratch) as slot:
            process = await starting.launched(scratch, spec)
            scratch.engine_started(process)
            # Nobody waits for it as they do for the engines of instances.
            await asyncio.to_thread(priority.lower, process.tree(), priority.QUIET)
            slot.limit_cpu()
            self._host.headroom.give(process.group, spec.size.memory_bytes)
            try:
                await starting.until_usable(scratch, process, scratch.login, self._settings, slot)
                await starting.limit(self._host, scratch, process, once_more=once_more)
            except EngineError:
                await self._stop(scratch)
                raise

    async def _stop(self, scratch: ScratchInstance) -> None:
        process = scratch.engine_ended()
        if process is not None:
            self._host.limit_cpu(process, None)
            timeout_s = self._settings.stop_timeout_s
            await scratch.driver.stop(scratch.site, process, timeout_s)

    @contextlib.asynccontextmanager
    async def _scratch(self, source: HostedInstance) -> AsyncIterator[ScratchInstance]:
        """Nothing of it is left, whatever happens within."""
        spec = replace(source.record.spec, host="", domains=(), idle_pause_s=None)
        # Without a tenant of its own, an instance is one: this one belongs to the instance's.
        spec = replace(spec, tenant=source.record.tenant, continuous_archiving=False)
        uid = self._idle_uids.pop() if self._idle_uids else self._uids.take_for_a_while()
        record = InstanceRecord(f"{SCRATCH}{ULID()}", uid, spec, "running", None, time.time())
        scratch = ScratchInstance(record, self._layout, source)
        try:
            yield scratch
        finally:
            # Whoever cancels a migration does so again and again until it has ended.
            await to_its_end(self._remove(scratch))
        self._idle_uids.append(uid)

    async def _remove(self, scratch: ScratchInstance) -> None:
        site = scratch.site
        try:
            await self._stop(scratch)
        finally:
            await asyncio.to_thread(self._host.forget, site)
            await scratch.driver.erase(site)
            for folder in (site.directory, site.run):
                await in_own_thread(engine_files.remove, folder)

    async def sweep(self) -> None:
        """What a killed cell left, when one starts; its engines have been ended by then."""
        for name in await asyncio.to_thread(engine_files.names, self._layout.instances):
            if name.startswith(SCRATCH):
                site = self._layout.site(name, 0)
                for folder in (site.directory, site.run):
                    await in_own_thread(engine_files.remove, folder)
                log.info("cell.verification_abandoned", instance_id=name)
