"""The cell itself: its parts put together, its start and its end."""

import asyncio
import contextlib
import hashlib
import os
import secrets
import signal
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

import structlog

from cell.access.clock import Clock
from cell.access.credentials import Credentials
from cell.access.lasting import LastingAccess
from cell.access.signatures import Signatures, last_heard
from cell.access.steps import Steps
from cell.access.tokens import Tokens
from cell.backups.keys import BackupKeys, Recovery
from cell.backups.repository import Repository
from cell.backups.two_stores import open_stores
from cell.backups.wal_store import WalStore
from cell.certificates import pki
from cell.certificates.acme.ledger import Ledger
from cell.certificates.domains import Domains
from cell.console.service import ConsoleService
from cell.console.sessions import ConsoleSessions
from cell.database import Database
from cell.engines import PACKAGES, find
from cell.engines.driver import EngineError, HasExtensions
from cell.instances import replaced_data, snapshots
from cell.instances.backup_copies import BackupCopies
from cell.instances.backups import InstanceBackups
from cell.instances.beginnings import Beginnings
from cell.instances.copied import Copied
from cell.instances.downloads import Downloads
from cell.instances.dumps import Dumps
from cell.instances.hosted import HostedInstance
from cell.instances.increments import Increments
from cell.instances.lifecycle import Lifecycle
from cell.instances.lost_data import LOST, LostData
from cell.instances.queues import QueueDatabases
from cell.instances.records import InstanceRecord, Records
from cell.instances.restores import Restores
from cell.instances.route_file import RouteFile
from cell.instances.supervisor import Supervisor
from cell.instances.uids import Uids
from cell.instances.verification import Verifier
from cell.instances.wal_archives import WalArchives
from cell.instances.wal_chains import WalChains
from cell.instances.wal_recoveries import WalRecoveries
from cell.layout import Layout, write_atomically
from cell.migrations.commands import Migrations
from cell.migrations.record import MigrationRecords
from cell.migrations.runs import MigrationRuns
from cell.migrations.sources import SentSources
from cell.runtime import log_files, machine, owners
from cell.runtime.host import Host
from cell.sealing import Sealer, read_or_make_key
from cell.settings import CellSettings

log = structlog.get_logger("cell")

UID_FIRST = 200_000
UIDS_PER_CELL = 100_000
CELLS_PER_HOST = 10_000
# For what waits on disks, beside what the event loop does: asyncio's own are few on few CPUs.
THREADS = 32
RENEW_EVERY_S = 3600.0
# So long a cell that starts waits for engines that still run, before it serves.
ADOPT_S = 2.0


class Cell:
    """Everything but HTTP. Made, then `open`ed on the event loop it lives on, then `close`d."""

    def __init__(self, settings: CellSettings) -> None:
        self.settings = settings
        self.layout = Layout.make(settings.home)
        self._claim = self.layout.claim(settings.home_wait_s)
        key = read_or_make_key(self.layout.seal_key)
        self.database = Database(self.layout.database)
        self.clock = Clock(last_heard(self.database), host=settings.clock)
        self.signatures = Signatures(self.database, settings, self.clock)
        self.tokens = Tokens(self.database, settings, self.clock)
        self.steps = Steps(self.database)
        self.gateway_token = self._gateway_token()
        self.public_host = f"cell.{settings.region}.{settings.instance_domain}"
        name = cell_name(self.layout)
        uids = uids_of(name)
        self.host = Host(
            *(str(self.layout.home), name, PACKAGES),
            confine=settings.confine,
            uids=uids,
            key=key,
        )
        self._settle()
        found = find(self.host, settings.engines)
        self.drivers, self._refused = found.drivers, found.refused
        free = Uids(self.database, uids, partial(owners.in_use, uids))
        self.records = Records(self.database, free)
        self.credentials = Credentials(self.database, Sealer(key, "cell credentials v1"))
        self.copied = Copied(self.database)
        self.repository, recoveries = self._open_repository(key)
        self.lost_data = LostData(self.database)
        ledger = Ledger(self.database, Sealer(key, "cell acme v1"))
        self.supervisor = Supervisor(
            *(settings, self.layout, self.host, self.records, self.credentials),
            RouteFile(self.layout, self.public_host),
            Domains(settings, self.layout.home, ledger),
            self._make_beginnings(recoveries),
        )
        self.lifecycle = Lifecycle(
            *(settings, self.layout, found, self.records, self.credentials, self.supervisor)
        )
        self._open_data(free, recoveries)
        self.migrations = self._make_migrations(Sealer(key, "cell migrations v1"))
        self.sources = SentSources(self.tokens, self.lifecycle, self.migrations)
        self.queues = QueueDatabases(self.lifecycle, self.host)
        self.console = ConsoleService(
            ConsoleSessions(self.database), self.lifecycle, self.supervisor
        )
        logs, data = self.supervisor.pools.followed_logs, self.supervisor.pools.data_streams
        self.lasting_access = LastingAccess({"console": self.console, "data": data, "logs": logs})
        self._chores: list[asyncio.Task[None]] = []
        self._certificates = self._ensure_certificates()

    def _make_beginnings(self, recoveries: WalRecoveries) -> Beginnings:
        kept = (self.repository, recoveries, self.lost_data, self.copied)
        return Beginnings(self.settings, self.layout, *kept)

    def _make_migrations(self, sealer: Sealer) -> Migrations:
        records = MigrationRecords(self.database, sealer)
        runs = MigrationRuns(self.settings, self.supervisor, self.verifier, self.restores, records)
        return Migrations(self.supervisor, records, runs)

    def _open_data(self, uids: Uids, recoveries: WalRecoveries) -> None:
        """What leads data of instances out of them, and back."""
        settings, supervisor, repository = self.settings, self.supervisor, self.repository
        self.verifier = Verifier(
            *(settings, self.layout, self.host, supervisor.pools, uids, repository)
        )
        self.archives = WalArchives(settings, supervisor, recoveries)
        self.copies = BackupCopies(
            *(settings, supervisor, repository, recoveries.chains, self.copied)
        )
        self.backups = InstanceBackups(
            *(settings, self.layout, supervisor, repository, self.verifier, self.archives),
            *(self.copies, Increments(settings, self.database, repository)),
        )
        self.restores = Restores(
            *(settings, supervisor, repository, self.backups, recoveries), self.copied
        )
        self.dumps = Dumps(settings, supervisor)
        self.downloads = Downloads(settings, repository)

    def _open_repository(self, key: bytes) -> tuple[Repository, WalRecoveries]:
        home, settings = self.layout.home, self.settings
        stores = open_stores(settings, home)
        keys = BackupKeys(self.database, Sealer(key, "cell backups v1"))
        recovery = Recovery(home, settings.backup_recovery_recipient)
        recoveries = WalRecoveries(WalChains(self.database), WalStore(stores, keys), self.copied)
        return Repository(stores, keys, recovery), recoveries

    def _settle(self) -> None:
        """Has all that engines enter where they can go."""
        if self.host.moves(self.layout):
            # What runs uses what is moved away; it comes back.
            self._end_strays([], set())
        self.layout = self.host.settle(self.layout)

    async def open(self) -> None:
        """Takes over the engines that still run, and begins to start those that do not."""
        self.console.open()
        asyncio.get_running_loop().set_default_executor(ThreadPoolExecutor(THREADS, "cell"))
        for record in self.records.every():
            self._take_in(record)
        instances = list(self.supervisor.instances.values())
        await asyncio.to_thread(snapshots.renew, instances)
        await asyncio.to_thread(self._settle_data, instances)
        wanted = [each for each in instances if each.record.desired == "running"]
        kept = await self._adopt_all(wanted)
        await asyncio.to_thread(self._end_strays, instances, kept)
        await self.verifier.sweep()
        self.supervisor.spawn(self.backups.sweep())
        for instance in wanted:
            if instance.instance_id not in kept and not instance.failed:
                self.supervisor.spawn(self._bring_back(instance))
        self.migrations.open()
        await self.supervisor.tick()
        self.supervisor.publish()
        if any(each.record.spec.domains for each in instances):
            self.supervisor.spawn(self.supervisor.certify_domains())
        self._chores = [
            asyncio.create_task(self._every(self.settings.tick_s, self._tick)),
            asyncio.create_task(self._every(RENEW_EVERY_S, self._housekeeping)),
        ]
        engines = {name: driver.versions() for name, driver in self.drivers.items()}
        log.info("cell.started", cell_id=self.settings.cell_id, engines=engines, adopted=len(kept))

    async def close(self) -> None:
        for task in self._chores:
            task.cancel()
        await asyncio.gather(*self._chores, return_exceptions=True)
        # Nothing that was begun may start an engine after the last one was stopped.
        await self.steps.close()
        await self.supervisor.domains.close()
        await self.supervisor.close(stop_engines=self.settings.stop_engines)
        self.supervisor.publish()
        if self.settings.stop_engines:
            # One whose start or stop was broken off belongs to no instance any more.
            await asyncio.to_thread(self._end_strays, [], set())
            await asyncio.to_thread(self.host.close)
        self.database.close()
        if self.settings.stop_engines:
            self.layout.remove_sockets()
        os.close(self._claim)
        log.info("cell.stopped", engines_stopped=self.settings.stop_engines)

    def description(self) -> dict[str, Any]:
        settings, certificates = self.settings, self._certificates
        return {
            "cell_id": settings.cell_id,
            "region": settings.region,
            "instance_domain": settings.instance_domain,
            "public_host": self.public_host,
            "ports": dict(settings.ports),
            "engines": [
                {
                    "engine": name,
                    "versions": list(driver.versions()),
                    "extensions": driver.extensions() if isinstance(driver, HasExtensions) else {},
                    "source": driver.source,
                }
                for name, driver in sorted(self.drivers.items())
            ],
            "refused": [
                {"engine": name, "reason": refusal.reason, "remedy": refusal.remedy}
                for name, refusal in sorted(self._refused.items())
            ],
            "clock": {"host_time": self.clock.host(), "offset_s": self.clock.offset_s},
            "capacity": machine.capacity(self.layout.home),
            "has_second_store": self.copies.has_store,
            "confinement": {
                name: {"enforced": means.enforced, "reason": means.reason}
                for name, means in self.host.confinement.items()
            },
            "ca": {
                "root_pem": certificates.root_pem.read_text(),
                "chain_pem": certificates.chain_pem.read_text(),
            },
        }

    def _take_in(self, record: InstanceRecord) -> None:
        has_begun = (self.layout.instances / record.instance_id / snapshots.BEGUN).exists()
        data_lost = self.lost_data.is_left(record.instance_id, has_begun=has_begun)
        if data_lost:
            kept = (self.records, self.credentials, self.tokens)
            record = self.lost_data.prepare(record, *kept)
            self.archives.lost(record.instance_id)
        site = self.layout.site(record.instance_id, record.uid)
        driver = self.drivers.get(record.spec.engine)
        if driver is None:
            log.error("cell.engine_missing", instance_id=record.instance_id)
            return
        instance = HostedInstance(record, site, driver)
        instance.has_backup_key = self.repository.keys.find(record.instance_id) is not None
        instance.restored = self.copied.restored(record.instance_id)
        self.copies.watch(instance)
        if data_lost:
            site.make(self.host.owner(site))
            instance.data_lost = True
            instance.start_failed(LOST)
        self.supervisor.instances[record.instance_id] = instance

    def _settle_data(self, instances: list[HostedInstance]) -> None:
        """Where a restore did not come to its end the former data is back; no engine has it."""
        for instance in instances:
            if replaced_data.is_pending(instance.site):
                self.host.forget(instance.site)
                replaced_data.put_back(instance.site)
                log.warning("cell.restore_abandoned", instance_id=instance.instance_id)
            replaced_data.clear(instance.site)
            self.dumps.clear(instance)

    async def _adopt_all(self, wanted: list[HostedInstance]) -> set[str]:
        """The instances whose engines are kept; those that take long keep nobody else waiting."""
        tasks = [asyncio.create_task(self._adopt(each)) for each in wanted]
        if tasks:
            await asyncio.wait(tasks, timeout=ADOPT_S)
        kept = set()
        for instance, task in zip(wanted, tasks, strict=True):
            if not task.done():
                self.supervisor.spawn(self._adopt_late(instance, task))
            elif (error := task.exception()) is not None:
                log.error("cell.not_adopted", instance_id=instance.instance_id, exc_info=error)
                continue
            elif not task.result():
                continue
            kept.add(instance.instance_id)
        return kept

    async def _adopt(self, instance: HostedInstance) -> bool:
        """Whether its engine is kept."""
        if (process := self.host.find(instance.site)) is None:
            return False
        process.resume()
        async with instance.lock:
            return await self.supervisor.adopt(instance)

    async def _adopt_late(self, instance: HostedInstance, adopting: asyncio.Task[bool]) -> None:
        """As one that still reads its data, or whose sessions leave it no CPU."""
        if not await adopting:
            await self._bring_back(instance)

    async def _bring_back(self, instance: HostedInstance) -> None:
        async with instance.lock:
            if instance.record.desired != "running" or instance.process is not None:
                return
            try:
                await self.supervisor.bring_up(instance)
            except (EngineError, OSError) as error:
                reason = str(error)
            else:
                return
        await self.supervisor.restart(instance, reason)

    def _end_strays(self, instances: list[HostedInstance], kept: set[str]) -> None:
        """Engines nobody knows would hold their database's lock for ever."""
        known = {
            pid
            for each in instances
            if each.instance_id in kept
            for pid in self.host.strays(each.site)
        }
        for pid in set(self.host.strays()) - known:
            log.warning("cell.stray_ended", pid=pid)
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)

    async def _every(self, interval_s: float, work: Any) -> None:
        while True:
            await asyncio.sleep(interval_s)
            try:
                await work()
            except Exception as error:  # noqa: BLE001 - a full disk must not end what serves
                log.error("cell.chore_failed", reason=repr(error))  # noqa: TRY400 - one line

    async def _tick(self) -> None:
        await self.supervisor.tick()
        self.archives.tick()
        self.copies.tick()
        await snapshots.sweep(self.supervisor.instances)
        self.lifecycle.forget_erased()
        logs = [instance.site.log for instance in self.supervisor.instances.values()]
        await asyncio.to_thread(self._rotate, logs)

    def _rotate(self, logs: list[Path]) -> None:
        for each in logs:
            log_files.rotate(each, self.settings.log_bytes_max)

    async def _housekeeping(self) -> None:
        self.signatures.forget_old()
        self.tokens.forget_expired()
        self.console.sessions.forget_ended()
        self.steps.forget_old()
        self.records.forget_old()
        self._certificates = await asyncio.to_thread(self._ensure_certificates)
        await self.supervisor.certify_domains()
        await self.backups.sweep()
        await self.archives.sweep()

    def _ensure_certificates(self) -> pki.CertificateFiles:
        settings = self.settings
        return pki.ensure(
            self.layout.home, settings.region, settings.instance_domain, datetime.now(UTC)
        )

    def _gateway_token(self) -> str:
        """Made anew on each start; the gateway reads it before every request."""
        token = secrets.token_urlsafe(32)
        write_atomically(self.layout.gateway_token, token.encode())
        return token


def cell_name(layout: Layout) -> str:
    """By its folder, so that two cells on one machine are never taken for each other."""
    return hashlib.sha256(os.fsencode(layout.home)).hexdigest()[:16]


def uids_of(name: str) -> range:
    """Those that a cell's engines run as, and no other cell's, unless by a rare chance."""
    first = UID_FIRST + int(name[:8], 16) % CELLS_PER_HOST * UIDS_PER_CELL
    return range(first, first + UIDS_PER_CELL)
