"""An instance in the cell's memory: its record, its engine's process, and how it is doing."""

import asyncio
import contextlib
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass
from typing import Any

from cell.engines.driver import (
    ChecksUpgrades,
    Driver,
    EngineError,
    Metrics,
    RestoresLogins,
    WritesAnew,
)
from cell.instances import statement_counts
from cell.instances.activity import Traffic
from cell.instances.records import InstanceRecord
from cell.instances.state import InstanceState
from cell.instances.statement_counts import StatementCount
from cell.layout import Site
from cell.specification import Size, Spec
from cell.timestamps import moment

ROUTED = {"running", "paused"}


@dataclass
class BackupProgress:
    """Of a backup that is made or restored, in bytes of the data; 0 where they are not known."""

    backup_id: str
    phase: str
    total_bytes: int = 0
    done_bytes: int = 0

    def begin(self, phase: str, total_bytes: int) -> None:
        self.phase, self.total_bytes, self.done_bytes = phase, total_bytes, 0

    def add(self, count: int) -> None:
        # An archive is somewhat longer than what is in it.
        self.done_bytes = min(self.total_bytes, self.done_bytes + count)

    def add_half(self, count: int) -> None:
        """Of what is done in two steps, one after the other."""
        self.add(count // 2)


class HostedInstance(InstanceState):
    """An instance with its driver, and what is under way for it."""

    counting: asyncio.Task[None] | None = None
    statement_count: StatementCount | None = None

    def __init__(self, record: InstanceRecord, site: Site, driver: Driver) -> None:
        super().__init__(record)
        self.site = site
        self.driver = driver
        self._ceiling_share = driver.ceiling_share if isinstance(driver, WritesAnew) else 1.0
        self.lock = asyncio.Lock()
        # While this is set, whoever has the lock lets logins be changed, by one at a time.
        self.lets_logins_change = asyncio.Event()
        self.changing_logins = asyncio.Lock()
        self.awake_since = time.time()
        self.metrics = Metrics(0, 0, 0.0)
        self.wake: asyncio.Task[None] | None = None
        self.watch: asyncio.Task[None] | None = None
        self.flush: asyncio.Task[None] | None = None
        self.holding: asyncio.Task[None] | None = None
        self.look: asyncio.Task[None] | None = None
        self.looked_at = time.monotonic()
        self.unwell_since: float | None = None
        # What the gateway knows the passwords of logins by.
        self.proofs: dict[str, str] = {}
        self.checking: asyncio.Task[None] | None = None
        self.checked_at = 0.0
        # It may be above its ceiling until then (monotonic).
        self.lent_until: float | None = None
        # Its next start above its ceiling.
        self.full_again: asyncio.Task[None] | None = None
        # What is done with it while its engine does not run as usual; a deletion ends that.
        self.work: str | None = None
        # For a place to do it: a deletion ends these.
        self.waits: set[asyncio.Timeout] = set()
        # How many deletions wait for what is done with it.
        self.leaving = 0
        # Held by whoever makes, removes or restores a backup of it; taken before the lock.
        self.backups_lock = asyncio.Lock()
        # There may be something of it in the store.
        self.has_backup_key = False
        # It was lost with a former home; see lost_data.py.
        self.data_lost = False
        self.backup: BackupProgress | None = None
        self.restore: BackupProgress | None = None
        # While other data takes the place of its own, nothing that it writes is archived.
        self.is_replaced = False
        # What is told of its archived WAL, where its engine has any.
        self.archiving: Callable[[], dict[str, Any] | None] = lambda: None
        # What is told of the copies of its backups, where the cell has a second store.
        self.copies: Callable[[], Mapping[str, Any] | None] = lambda: None
        # The backup that its data is of, and whether that was read from the second store.
        self.restored: tuple[str, bool] | None = None
        # When the control plane first heard that it is erased (monotonic).
        self.told_erased_at: float | None = None
        self.read_proofs()

    def read_proofs(self) -> bool:
        """True where its logins are other ones than before."""
        former = self.proofs
        if isinstance(self.driver, RestoresLogins):
            self.proofs = self.driver.proofs(self.site)
        return self.proofs != former

    @property
    def instance_id(self) -> str:
        return self.record.instance_id

    @property
    def ceiling_bytes(self) -> int:
        """Where the engine is stopped."""
        return self.ceiling_of(self.record.spec.size)

    def ceiling_of(self, size: Size) -> int:
        # Asked each second: to look for what a protocol has would take longer than all else then.
        return int(size.ceiling_bytes * self._ceiling_share)

    def touch(self, for_s: float = 0.0) -> None:
        """It is used, now and for so long, in another way than through the gateway."""
        self.awake_since = time.time() + for_s

    def why_work_ends(self) -> str | None:
        """None where what is done with it may go on."""
        return "the instance is being deleted" if self.leaving else None

    def why_backup_ends(self) -> str | None:
        """None where a backup of it may go on being made, as also where it is deleted."""
        return "the instance is being erased" if self.record.desired == "erased" else None

    @contextlib.contextmanager
    def at_work(self, work: str) -> Iterator[None]:
        """Raises EngineError where it is to be deleted."""
        if (why := self.why_work_ends()) is not None:
            raise EngineError(why)
        outer, self.work = self.work, work
        try:
            yield
        finally:
            self.work = outer

    async def check_upgrade(self, spec: Spec) -> None:
        """Raises EngineError where an engine that runs need not be stopped to know."""
        if self.usable and isinstance(self.driver, ChecksUpgrades):
            await self.driver.check_upgrade(self.site, spec)

    def _fullness(self) -> str | None:
        """Told while it runs: what it refuses then is its engine's matter."""
        size_bytes = self.record.spec.size.storage_bytes
        if self.status != "running" or self.metrics.storage_bytes <= size_bytes:
            return None
        # Not how much is used, which the metrics say: each look would find another reason.
        return (
            f"the storage is full: all of its {size_bytes / 10**9:.2f} GB are used; remove data, "
            "or choose more storage or a larger size (resize)"
        )

    def _notice(self) -> str | None:
        return self.metrics.notice if self.status == "running" else None

    def _reasons(self) -> str | None:
        """What ended its engine before hides nothing of what holds now."""
        return "; ".join(filter(None, (self.reason, self._fullness(), self._notice()))) or None

    def observation(
        self, port: int, traffic: Traffic, credentials: tuple[int, float | None]
    ) -> dict[str, Any]:
        spec = self.record.spec
        running = self.process is not None
        return {
            "instance_id": self.instance_id,
            "status": self.status,
            "status_reason": self._reasons(),
            "paused_by": self.record.paused_by if self.record.desired == "paused" else None,
            "engine": spec.engine,
            "engine_version": spec.engine_version,
            "size": spec.size.name,
            "host": spec.host,
            "port": port,
            "network_version": spec.network_version,
            "connections": traffic.connections,
            "connections_peaks": [
                {"hour": moment(hour * 3600), "connections": peak}
                for hour, peak in sorted(traffic.peaks.items())
            ],
            "last_activity_at": moment(traffic.last_activity_at),
            "storage_bytes": self.metrics.storage_bytes,
            "memory_bytes": self.metrics.memory_bytes if running else 0,
            "cpu_s": round(self.metrics.cpu_s, 3) if running else 0.0,
            "statements": statement_counts.told(self),
            "started_at": moment(self.process.started_at) if self.process else None,
            "restarts": self.restarts,
            "credentials": {
                "generation": credentials[0],
                "overlap_until": moment(credentials[1]),
            },
            "data_lost": self.data_lost,
            "backup": self.backup and asdict(self.backup),
            "restore": self.restore and asdict(self.restore),
            "restored": self.restored
            and {"backup_id": self.restored[0], "from_copy": self.restored[1]},
            "archiving": self.archiving(),
            "copies": self.copies(),
        }
