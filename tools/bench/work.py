"""Owns the benchmark of the work engine: operations beside the bare transactions they consist of.

An operation of three steps is five transactions: the claim, one for each step, and the end. Beside
it the same number of updates of one row is committed through the same database layer. Both are
measured in turns, so that other load on the machine cancels out of the ratios.
"""

import logging
import statistics
import sys
import time
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, Final, cast

import structlog
from rich.console import Console
from rich.table import Table
from sqlalchemy import func, select, text

from contract_tests.databases import DIALECTS, Databases
from control import work
from control.work import Operation, Worker, workflow
from storage.database import Database
from storage.work import Work

ROUNDS: Final = 3
OPERATIONS: Final = 50
ALONE: Final = 8
TRANSACTIONS: Final = 5
"""In an operation of three steps."""
THROUGHPUT_MIN: Final = 0.2
"""Operations a second, of those that bare transactions would make; the rest is the engine's."""
LATENCY_MAX: Final = 15.0
"""From enqueue to end, in times of five bare transactions."""


@workflow("bench.three_steps", deadline_s=600)
def three_steps(op: Operation) -> None:
    op.step("one", lambda: 1)
    op.step("two", lambda: {"found": 2})
    op.step_in_transaction("three", lambda _db: None)


def _bare_s(database: Database) -> float:
    """The time of five bare transactions."""
    touch = text("UPDATE cells SET region = 'r' WHERE id = 'cell_bench'")
    started = time.perf_counter()
    for _ in range(OPERATIONS * TRANSACTIONS):
        with database.write() as db:
            db.execute(touch)
    return (time.perf_counter() - started) / OPERATIONS


def _enqueue(database: Database, count: int) -> None:
    with database.write() as db:
        for number in range(count):
            work.enqueue(db, three_steps, f"lane {number}")


def _finish(database: Database, look_every_s: float) -> None:
    open_work = select(func.count()).where(Work.due.is_not(None))
    while True:
        with database.read() as db:
            if not db.scalar(open_work):
                return
        time.sleep(look_every_s)


def _many_s(database: Database, make_worker: Callable[[], Worker]) -> float:
    """The time of one operation among many, in lanes of their own."""
    _enqueue(database, OPERATIONS)
    worker = make_worker()
    started = time.perf_counter()
    worker.start()
    _finish(database, 0.01)
    taken = time.perf_counter() - started
    worker.stop()
    return taken / OPERATIONS


def _alone_s(database: Database) -> float:
    """The time from enqueue to end of one operation that nothing else delays."""
    started = time.perf_counter()
    _enqueue(database, 1)
    _finish(database, 0.001)
    return time.perf_counter() - started


def _measure(database: Database, rounds: int) -> dict[str, float]:
    services = cast("Any", SimpleNamespace(database=database))

    def make_worker() -> Worker:
        return Worker(services, work.registry_of(three_steps), keep_schedules=False)

    bare, many, alone = [], [], []
    for number in range(rounds + 1):
        taken = _bare_s(database), _many_s(database, make_worker)
        idle = make_worker()
        idle.start()
        latencies = [_alone_s(database) for _ in range(ALONE)]
        idle.stop()
        if number:  # the first round only warms up
            bare.append(taken[0])
            many.append(taken[1])
            alone.append(statistics.median(latencies))
    medians = [statistics.median(each) for each in (bare, many, alone)]
    return {
        "operations_s": 1 / medians[1],
        "latency_ms": medians[2] * 1000,
        "throughput": statistics.median(b / m for b, m in zip(bare, many, strict=True)),
        "latency": statistics.median(a / b for a, b in zip(alone, bare, strict=True)),
    }


def run(rounds: int = ROUNDS) -> dict[str, Any]:
    """Operations a second and the latency of one, on both databases, beside bare transactions."""
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.ERROR))
    databases = Databases()
    found = {}
    try:
        for dialect in DIALECTS:
            database = Database(databases.migrated(dialect))
            try:
                found[dialect] = _measure(database, rounds)
            finally:
                database.dispose()
    finally:
        databases.close()
    kept = [
        each["throughput"] >= THROUGHPUT_MIN and each["latency"] <= LATENCY_MAX
        for each in found.values()
    ]
    return {"databases": found, "kept": all(kept)}


def show(result: dict[str, Any]) -> None:
    table = Table(title="Work: operations of three steps, compared with bare transactions")
    for name in ("database", "operations/s", "of bare", "at least", "latency", "x bare", "at most"):
        table.add_column(name, justify="left" if name == "database" else "right")
    for dialect, each in result["databases"].items():
        table.add_row(
            dialect,
            f"{each['operations_s']:.0f}",
            f"{each['throughput']:.2f}",
            f"{THROUGHPUT_MIN:.2f}",
            f"{each['latency_ms']:.1f} ms",
            f"{each['latency']:.1f}",
            f"{LATENCY_MAX:.1f}",
        )
    console = Console()
    console.print(table)
    console.print(
        '"Bare" is five updates of one row, committed one by one: as many transactions as an '
        "operation has. Latency is the median from enqueue to end, with an idle worker. PostgreSQL "
        "runs on the same cores, without fsync."
    )


if __name__ == "__main__":
    outcome = run()
    show(outcome)
    sys.exit(0 if outcome["kept"] else 1)
