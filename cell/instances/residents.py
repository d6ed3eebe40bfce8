"""An instance in the cell's memory: its record, its engine's process, and how it is doing."""

import asyncio
import contextlib
import time
from collections.abc import Iterable, Iterator
from typing import Any

import orjson

from cell.engines.driver import Driver, EngineError, Metrics, Proving
from cell.instances.activity import Traffic
from cell.instances.records import Record
from cell.instances.state import InstanceState
from cell.layout import Layout, Site, write_atomically
from cell.timestamps import moment

ROUTED = {"running", "paused"}


class Resident(InstanceState):
    """An instance with its driver, and what is under way for it."""

    def __init__(self, record: Record, site: Site, driver: Driver) -> None:
        super().__init__(record)
        self.site = site
        self.driver = driver
        self.lock = asyncio.Lock()
        self.awake_since = time.time()
        self.metrics = Metrics(0, 0, 0.0)
        self.wake: asyncio.Task[None] | None = None
        self.watch: asyncio.Task[None] | None = None
        self.flush: asyncio.Task[None] | None = None
        self.look: asyncio.Task[None] | None = None
        self.looked_at = time.monotonic()
        self.unwell_since: float | None = None
        # What the gateway knows the passwords of logins by.
        self.proofs: dict[str, str] = {}
        self.checking: asyncio.Task[None] | None = None
        self.checked_at = 0.0
        # What is done with it while its engine does not run as usual; a deletion ends that.
        self.work: str | None = None
        # For a place to do it.
        self.waits: asyncio.Timeout | None = None
        # How many deletions wait for what is done with it.
        self.leaving = 0
        # When the control plane first heard that it is erased (monotonic).
        self.told_erased_at: float | None = None
        self.read_proofs()

    def read_proofs(self) -> bool:
        """True where its logins are other ones than before."""
        former = self.proofs
        if isinstance(self.driver, Proving):
            self.proofs = self.driver.proofs(self.site)
        return self.proofs != former

    @property
    def instance_id(self) -> str:
        return self.record.instance_id

    def touch(self, for_s: float = 0.0) -> None:
        """It is used, now and for so long, in another way than through the gateway."""
        self.awake_since = time.time() + for_s

    def why_work_ends(self) -> str | None:
        """None where what is done with it may go on."""
        return "the instance is being deleted" if self.leaving else None

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

    def _fullness(self) -> str | None:
        """Told while it runs: what it refuses then is its engine's matter."""
        used, size = self.metrics.storage_bytes, self.record.spec.size.storage_bytes
        if self.status != "running" or used <= size:
            return None
        return (
            f"the storage is full: {used / 10**9:.2f} GB of {size / 10**9:.2f} GB are used; remove "
            "data, or choose more storage or a larger size (resize)"
        )

    def _notice(self) -> str | None:
        return self.metrics.notice if self.status == "running" else None

    def observation(
        self, port: int, traffic: Traffic, credentials: tuple[int, float | None]
    ) -> dict[str, Any]:
        spec = self.record.spec
        running = self.process is not None
        return {
            "instance_id": self.instance_id,
            "status": self.status,
            "status_reason": self.reason or self._fullness() or self._notice(),
            "paused_by": self.record.paused_by if self.record.desired == "paused" else None,
            "engine": spec.engine,
            "engine_version": spec.engine_version,
            "size": spec.size.name,
            "host": spec.host,
            "port": port,
            "connections": traffic.connections,
            "connections_peaks": [
                {"hour": moment(hour * 3600), "connections": peak}
                for hour, peak in sorted(traffic.peaks.items())
            ],
            "last_activity_at": moment(traffic.last_activity_at),
            "storage_bytes": self.metrics.storage_bytes,
            "memory_bytes": self.metrics.memory_bytes if running else 0,
            "cpu_s": round(self.metrics.cpu_s, 3) if running else 0.0,
            "started_at": moment(self.process.started_at) if self.process else None,
            "restarts": self.restarts,
            "credentials": {
                "generation": credentials[0],
                "overlap_until": moment(credentials[1]),
            },
        }


class Routes:
    """The file the gateway reads: which host leads where, and what to say where none does."""

    def __init__(self, layout: Layout, cell_host: str) -> None:
        self._layout = layout
        self._cell_host = cell_host
        self._written: dict[str, Any] = {}
        self._version = 0
        # On the first start there is none, and versions begin at one.
        with contextlib.suppress(OSError, ValueError, KeyError, TypeError):
            self._version = int(orjson.loads(layout.routes.read_bytes())["version"])

    def write(self, residents: Iterable[Resident]) -> None:
        """Does nothing where nothing changed."""
        instances = {
            resident.record.spec.host: _route(resident)
            for resident in residents
            if resident.record.desired in ROUTED
        }
        if instances == self._written and self._layout.routes.exists():
            return
        self._version += 1
        document = {
            "version": self._version,
            "cell": {
                "host": self._cell_host,
                "socket": str(self._layout.socket),
                # An older gateway says nothing of who calls, and an older cell would not take it.
                "proxy_header": True,
            },
            "instances": instances,
        }
        write_atomically(self._layout.routes, orjson.dumps(document))
        self._written = instances


def _route(resident: Resident) -> dict[str, Any]:
    spec = resident.record.spec
    state = resident.route_state
    refusals = {
        "paused": "the instance is paused; resume it to connect",
        "failed": "the instance has failed; see its status_reason",
    }
    return {
        "instance_id": resident.instance_id,
        "socket": str(resident.driver.socket(resident.site)),
        "protocol": resident.driver.protocol,
        "state": state,
        "allow_cidrs": None if spec.allow_cidrs is None else list(spec.allow_cidrs),
        "connections_max": spec.size.connections_max,
        "refusal": refusals.get(state),
        "domains": list(spec.domains),
        "client_ca_pem": spec.client_ca_pem,
        "logins": resident.proofs,
    }
