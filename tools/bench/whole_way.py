"""Owns the benchmark of the whole way of a request: CPU of the real server, beside a twin.

Each server is a process of its own that speaks HTTP; requests come one after the other over one
kept connection. Rounds of all servers are interleaved and medians taken, so that other load on
the machine cancels out of the ratios. The CPU of PostgreSQL itself is not counted.
"""

import contextlib
import json
import logging
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from http.client import HTTPConnection
from pathlib import Path
from typing import Any, Final, NamedTuple

import httpx
import psutil
import structlog
from rich.console import Console
from rich.table import Table
from sqlalchemy import delete

from contract_tests.api.harness import House, Tenant
from contract_tests.databases import DIALECTS, Databases
from storage.database import Database
from storage.events.audit import AuditEntry
from storage.events.events import Event
from storage.identifiers import new
from storage.instances.instances import Instance
from storage.replays import Replay
from storage.work import Work
from tools.bench.ways import RequestPipeline, free_port
from tools.bench.whole_way_server import OPERATIONS

ROUNDS: Final = 9
REQUESTS: Final = {"get": 400, "list": 200, "create": 80, "reveal": 200}
ROUTED: Final = ("get", "list", "create")
"""What is measured of `fewer`, by its bars."""
INSTANCES: Final = 20
_STARTED_S: Final = 60.0


class Bar(NamedTuple):
    """A promise: a request costs the first server at most `limit` times what the second takes."""

    operation: str
    limit: float
    of: str = "ours"
    against: str = "twin"


BARS: Final = (
    Bar("get", 0.45),
    Bar("list", 0.6),
    Bar("create", 0.6),
    # To find an operation among more of them costs no more, whichever it is. The limits differ as
    # the noise does: a round has fewer requests of those that cost more.
    Bar("get", 1.05, against="fewer"),
    Bar("list", 1.08, against="fewer"),
    Bar("create", 1.1, against="fewer"),
)


@dataclass(frozen=True)
class Tenancy:
    """Whose records are asked for: 20 instances of one organization."""

    tenant: Tenant
    instance_id: str

    def request(self, operation: str) -> tuple[str, str, bytes | None, dict[str, str]]:
        """Method, path, body and headers."""
        org, headers = self.tenant.path, {"Authorization": f"Bearer {self.tenant.key}"}
        one = f"{org}/instances/{self.instance_id}"
        if operation == "get":
            return "GET", one, None, headers
        if operation == "list":
            return "GET", f"{org}/instances?limit=20", None, headers
        if operation == "reveal":
            return "POST", f"{one}/credentials/reveal", None, headers
        headers |= {"Content-Type": "application/json", "Idempotency-Key": new("")}
        order = {
            "engine": "duckdb",
            "size": "f0",
            "region": "local",
            "name": f"b-{new('').lower()}",
        }
        path = f"{org}/projects/{self.tenant.project_id}/instances"
        return "POST", path, json.dumps(order).encode(), headers


class Server(RequestPipeline):
    """A process under measurement; `ask` sends one request and returns the answer's body."""

    def __init__(self, name: str, process: psutil.Process, connection: HTTPConnection) -> None:
        super().__init__(name, processes=[process])
        self._connection = connection

    def ask(self, method: str, path: str, body: bytes | None, headers: dict[str, str]) -> Any:
        self._connection.request(method, path, body, headers)
        answer = self._connection.getresponse()
        content = answer.read()
        if answer.status >= 400:  # noqa: PLR2004 - failures
            raise AssertionError(f"{self.name} answered {answer.status}: {content[:500]!r}")
        return json.loads(content)

    def measure(self, operation: str, tenancy: Tenancy, requests: int) -> None:
        self._connection.close()  # or one that the server is about to close for being idle is used
        before = self.cpu_s()
        for _ in range(requests):
            self.ask(*tenancy.request(operation))
        self.note(operation, (self.cpu_s() - before) / requests * 1e6)


@contextlib.contextmanager
def started(name: str, url: str, home: Path) -> Iterator[Server]:
    """The server, answering; ended with the block."""
    home.mkdir()
    port = free_port()
    command = [sys.executable, "-m", "tools.bench.whole_way_server", name, url, str(home)]
    with subprocess.Popen([*command, str(port)]) as process:
        try:
            _wait(port, process)
            yield Server(name, psutil.Process(process.pid), HTTPConnection("127.0.0.1", port))
        finally:
            process.terminate()


def _wait(port: int, process: subprocess.Popen[bytes]) -> None:
    until = time.monotonic() + _STARTED_S
    while time.monotonic() < until:
        if process.poll() is not None:
            raise RuntimeError(f"the server ended with status {process.returncode}")
        with contextlib.suppress(httpx.TransportError):
            httpx.get(f"http://127.0.0.1:{port}/")
            return
        time.sleep(0.1)
    raise RuntimeError("the server did not start")


def _filled(url: str, directory: Path) -> Tenancy:
    with House(url, directory) as house:
        tenant = house.tenant()
        made = [house.instance(tenant, running=False) for _ in range(INSTANCES)]
        house.settle()
        return Tenancy(tenant, made[0])


def _unordered(database: Database, tenancy: Tenancy) -> Callable[[], None]:
    """Forgets what a round created, so that each begins with the same records."""
    with database.read() as db:
        newest = db.query(Instance.id).order_by(Instance.id.desc()).limit(1).scalar() or ""

    def forget() -> None:
        with database.write() as db:
            db.execute(delete(Work).where(Work.due.is_not(None), Work.kind.like("instances.%")))
            db.execute(delete(Event).where(Event.instance_id > newest))
            db.execute(delete(Instance).where(Instance.id > newest))
            db.execute(delete(Replay).where(Replay.scope == tenancy.tenant.org_id))
            db.execute(delete(AuditEntry).where(AuditEntry.org_id == tenancy.tenant.org_id))

    return forget


def _same(servers: list[Server], tenancy: Tenancy) -> None:
    """All answer with the same instance, and the same list, or they are not to be compared."""
    for operation in ("get", "list"):
        shown = [server.ask(*tenancy.request(operation)) for server in servers]
        for each in shown[1:]:
            if set(each) != set(shown[0]) or each.get("id") != shown[0].get("id"):
                raise AssertionError(f"{operation}: {each} is not {shown[0]}")


def _measure(url: str, directory: Path, names: tuple[str, ...], rounds: int) -> dict[str, Server]:
    tenancy = _filled(url, directory)
    database = Database(url)
    forget = _unordered(database, tenancy)
    with contextlib.ExitStack() as stack:
        servers = [stack.enter_context(started(name, url, directory / name)) for name in names]
        _same(servers, tenancy)
        for number in range(rounds + 1):
            for operation, requests in REQUESTS.items():
                for server in servers:
                    if server.name == "fewer" and operation not in ROUTED:
                        continue
                    server.measure(operation, tenancy, requests)
                    forget()
            if number == 0:  # the first round only warms up
                for server in servers:
                    server.rounds.clear()
            servers.append(servers.pop(0))
    database.dispose()
    return {server.name: server for server in servers}


def _ratio(found: dict[str, Server], bar: Bar) -> float:
    """Of the same rounds, the median: a machine that slows down in some slows all down."""
    of, against = found[bar.of].rounds[bar.operation], found[bar.against].rounds[bar.operation]
    return statistics.median(one / other for one, other in zip(of, against, strict=True))


def run(rounds: int = ROUNDS) -> dict[str, Any]:
    """CPU in µs per request by database, operation and server, and each bar as it was measured."""
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.ERROR))
    databases = Databases()
    cpu_us: dict[str, dict[str, dict[str, float]]] = {}
    bars = []
    try:
        for dialect in DIALECTS:
            # Only one database's run has the third server: what routing costs, no database changes.
            names = ("ours", "twin", "fewer") if dialect == "sqlite" else ("ours", "twin")
            with tempfile.TemporaryDirectory(prefix="menagerie-bench-") as directory:
                url = databases.migrated(dialect)
                found = _measure(url, Path(directory), names, rounds)
            cpu_us[dialect] = {
                name: {operation: server.median(operation) for operation in server.rounds}
                for name, server in found.items()
            }
            for bar in BARS:
                if bar.against in found:
                    ratio = _ratio(found, bar)
                    bars.append({"database": dialect, **bar._asdict(), "ratio": ratio})
    finally:
        databases.close()
    return {"cpu_us": cpu_us, "bars": bars, "kept": all(b["ratio"] <= b["limit"] for b in bars)}


def show(result: dict[str, Any]) -> None:
    console = Console()
    table = Table(title="CPU of the server per request, in µs")
    for column in ("database", "server", *REQUESTS):
        table.add_column(column, justify="left" if column in ("database", "server") else "right")
    for dialect, servers in result["cpu_us"].items():
        for name, found in servers.items():
            cells = [f"{found[each]:.0f}" if each in found else "" for each in REQUESTS]
            table.add_row(dialect, name, *cells)
    console.print(table)
    bars = Table(title="Limits")
    for column in ("database", "ratio", "at most", "measured", ""):
        bars.add_column(column, justify="right" if column in ("at most", "measured") else "left")
    for bar in result["bars"]:
        kept = "pass" if bar["ratio"] <= bar["limit"] else "FAIL"
        what = f"{bar['operation']}: {bar['of']} / {bar['against']}"
        bars.add_row(bar["database"], what, f"{bar['limit']:.2f}", f"{bar['ratio']:.2f}", kept)
    console.print(bars)
    console.print(
        "The twin is FastAPI with Pydantic and SQLAlchemy on the same tables, written by hand with "
        "the same checks (key, membership, organization, quota, room, replay, audit), without rate "
        f'limits. "fewer" is ours with {OPERATIONS} operations. Both speak HTTP by uvicorn, uvloop '
        "and httptools. The CPU of PostgreSQL itself is not counted."
    )


if __name__ == "__main__":
    outcome = run()
    show(outcome)
    sys.exit(0 if outcome["kept"] else 1)
