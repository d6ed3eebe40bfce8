"""Owns the benchmark of the DuckDB service: CPU per request, beside the engine called directly.

Requests go straight into the ASGI app, with no sockets: credential, validation, the turns of loop
and engine, the value mapping and the encoding are all in, and so is what the second thread of the
turns costs: CPU is that of the whole process. Rounds are interleaved and medians taken, so that
other load on the machine cancels out of the ratios.
"""

import asyncio
import base64
import gc
import hashlib
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import duckdb
import orjson
import structlog
from rich.console import Console
from rich.table import Table

from instance_services.duckdb.database import EngineLimits
from instance_services.duckdb.engine import SerialExecutor
from instance_services.duckdb.service import make_app
from instance_services.duckdb.turns import QueryTurns
from instance_services.duckdb.users import Users

ROUNDS = 9
_PASSWORD = "bench"  # noqa: S105 - of a database that lives for seconds
_LIMITS = EngineLimits(memory_bytes=500_000_000, threads=1)
_OK = 200
_TABLE = """
CREATE TABLE facts AS SELECT
    i, 'name ' || i AS s, i * 1.5::DOUBLE AS d, i % 100 AS g, 'a longer text ' || i AS t,
    TIMESTAMP '2026-01-01' + to_minutes(i) AS ts, (i * 1.25)::DECIMAL(12,2) AS m
FROM range(10000) r(i)
"""


class Case(NamedTuple):
    """What is asked, how often a round, and what it may cost beside the engine alone."""

    name: str
    sql: str
    params: list[Any]
    requests: int
    encoded: bool
    limit: float | None


CASES = (
    Case("SELECT 1", "SELECT 1", [], 200, False, 2.5),
    Case("SELECT ? with a parameter", "SELECT ?", [1], 100, False, None),
    Case("10,000 x 5 numbers and texts", "SELECT i, s, d, g, t FROM facts", [], 4, True, 1.25),
    Case("10,000 x 5 numbers", "SELECT i, d, g, i, d FROM facts", [], 4, True, 1.25),
    Case("10,000 x 5 with DECIMAL", "SELECT i, s, d, ts, m FROM facts", [], 2, True, 1.25),
)


class Service:
    """The app, called as a server would call it."""

    def __init__(self, turns: QueryTurns, home: Path) -> None:
        users = home / "users.json"
        digest = hashlib.sha256(_PASSWORD.encode()).hexdigest()
        users.write_bytes(orjson.dumps({"app": [digest]}))
        self.engine = SerialExecutor(turns, home / "service.duckdb", home / "temp", _LIMITS)
        self._app = make_app(self.engine, Users(users))
        credential = base64.b64encode(f"app:{_PASSWORD}".encode())
        self._headers = [
            (b"host", b"instance"),
            (b"authorization", b"Basic " + credential),
            (b"content-type", b"application/json"),
        ]

    async def query(self, sql: str, params: list[Any]) -> bytes:
        body = orjson.dumps({"sql": sql, "params": params})
        sent: list[Any] = []
        events = [{"type": "http.request", "body": body, "more_body": False}]

        async def receive() -> Any:
            return events.pop() if events else await asyncio.Event().wait()

        async def send(event: Any) -> None:
            sent.append(event)

        await self._app(self._scope(len(body)), receive, send)
        if sent[0]["status"] != _OK:
            raise AssertionError(sent)
        answer: bytes = sent[1]["body"]
        return answer

    def _scope(self, length: int) -> dict[str, Any]:
        return {
            "type": "http",
            "asgi": {"version": "3.0", "spec_version": "2.3"},
            "http_version": "1.1",
            "method": "POST",
            "scheme": "http",
            "path": "/query",
            "raw_path": b"/query",
            "query_string": b"",
            "root_path": "",
            "headers": [*self._headers, (b"content-length", str(length).encode())],
            "client": None,
            "server": None,
        }


def _alone(connection: Any, case: Case) -> Callable[[], Any]:
    """The same through the package: execute, fetchall and, where rows are many, orjson."""
    params = case.params or None
    if not case.encoded:
        return lambda: connection.execute(case.sql, params).fetchall()
    return lambda: orjson.dumps(connection.execute(case.sql, params).fetchall(), default=str)


async def _cpu_us(case: Case, call: Callable[[], Awaitable[Any]]) -> float:
    started = time.process_time()
    for _ in range(case.requests):
        await call()
    return (time.process_time() - started) / case.requests * 1e6


async def _measure(case: Case, service: Service, connection: Any, rounds: int) -> dict[str, Any]:
    alone = _alone(connection, case)

    async def directly() -> None:
        alone()

    async def served() -> None:
        await service.query(case.sql, case.params)

    taken: dict[str, list[float]] = {"engine": [], "service": []}
    for number in range(rounds + 1):
        gc.collect()
        engine, answered = await _cpu_us(case, directly), await _cpu_us(case, served)
        if number:  # the first round only warms up
            taken["engine"].append(engine)
            taken["service"].append(answered)
    medians = {name: statistics.median(each) for name, each in taken.items()}
    return {
        "name": case.name,
        "engine_us": medians["engine"],
        "service_us": medians["service"],
        "ratio": medians["service"] / medians["engine"],
        "limit": case.limit,
    }


async def _measure_all(
    turns: QueryTurns, home: Path, cases: Sequence[Case], rounds: int
) -> list[dict[str, Any]]:
    service = Service(turns, home)
    await service.engine.start()
    connection = duckdb.connect(
        str(home / "alone.duckdb"), config={"threads": "1", "memory_limit": "500MB"}
    )
    try:
        connection.execute(_TABLE)
        await service.query(_TABLE, [])
        return [await _measure(case, service, connection, rounds) for case in cases]
    finally:
        connection.close()
        await service.engine.stop()


def run(rounds: int = ROUNDS) -> dict[str, Any]:
    """CPU in µs per request of each case, and its ratio to the engine alone.

    All of it on one CPU, which is what most sizes may use; one row is on all of them, where waking
    a thread costs as much as the machine underneath makes it cost.
    """
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(30))
    everywhere = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {min(everywhere)})
    try:
        cases = _on_a_loop(CASES, rounds)
    finally:
        os.sched_setaffinity(0, everywhere)
    spread = CASES[0]._replace(name="SELECT 1, on all CPUs")
    cases += _on_a_loop((spread,), rounds)
    return {
        "cases": cases,
        "kept": all(case["limit"] is None or case["ratio"] <= case["limit"] for case in cases),
    }


def _on_a_loop(cases: Sequence[Case], rounds: int) -> list[dict[str, Any]]:
    """Measured as the service runs: on its loop, in turns."""
    turns = QueryTurns()
    with tempfile.TemporaryDirectory() as home:
        return turns.run(_measure_all(turns, Path(home), cases, rounds))


def show(result: dict[str, Any]) -> None:
    table = Table(title="DuckDB service: CPU per request, compared with the engine alone")
    table.add_column("query")
    for name in ("engine µs", "service µs", "ratio", "at most", ""):
        table.add_column(name, justify="right")
    for case in result["cases"]:
        limit = case["limit"]
        verdict = "" if limit is None else "pass" if case["ratio"] <= limit else "FAIL"
        figures = (f"{case['engine_us']:.0f}", f"{case['service_us']:.0f}", f"{case['ratio']:.2f}")
        table.add_row(case["name"], *figures, "" if limit is None else f"{limit:.2f}", verdict)
    console = Console()
    console.print(table)
    console.print(
        "The engine alone is execute and fetchall of the duckdb package, and orjson for large "
        "results. Both run on one CPU unless the row says otherwise. DECIMAL costs the service "
        "less, because the engine writes it as text."
    )


if __name__ == "__main__":
    outcome = run()
    show(outcome)
    sys.exit(0 if outcome["kept"] else 1)
