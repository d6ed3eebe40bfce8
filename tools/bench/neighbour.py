"""Owns the benchmark of promise 46: an instance beside a neighbour that takes all it can.

Quiet and noisy stretches take turns and are compared with each other, so that whatever else the
machine does is in both. The bar is the promise's; where nothing can be held back, it is said.
"""

import signal
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from contract_tests.cell.rig import Rig, until
from contract_tests.isolation.test_neighbour import ENGINES, Neighbour, missing, simple_query

ROUNDS = 16
STRETCH_S = 0.5
SETTLE_S = 0.1
# As a client that has something to do between two queries; else it would compete with itself.
PAUSE_S = 0.001
SLOWER_MAX = 2.0


def _stretch(ask: Callable[[], Any]) -> list[float]:
    """How long each query took, in seconds."""
    took = []
    ends = time.perf_counter() + STRETCH_S
    while (began := time.perf_counter()) < ends:
        ask()
        took.append(time.perf_counter() - began)
        time.sleep(PAUSE_S)
    return took


def measure(rig: Rig, versions: dict[str, str], name: str) -> dict[str, Any]:
    mine = rig.make(engine=name, engine_version=versions[name])
    noise = rig.make(engine="postgres", engine_version=versions["postgres"])
    neighbour = Neighbour(rig, noise)
    took: dict[signal.Signals, list[float]] = {signal.SIGSTOP: [], signal.SIGCONT: []}
    with simple_query(rig, name, mine) as ask:
        _stretch(ask)
        neighbour.begin()
        try:
            until(neighbour.throttled, "the neighbour takes all it can get")
            for _ in range(ROUNDS):
                for number, times in took.items():
                    neighbour.send(number)
                    time.sleep(SETTLE_S)
                    times.extend(_stretch(ask))
        finally:
            neighbour.end()
    rig.action(mine, "erase")
    quiet, noisy = took[signal.SIGSTOP], took[signal.SIGCONT]
    return {
        "name": name,
        "median": statistics.median(noisy) / statistics.median(quiet),
        "p99_ms": _p99(quiet) * 1000,
        "p99": _p99(noisy) / _p99(quiet),
    }


def _p99(took: list[float]) -> float:
    return sorted(took)[int(len(took) * 0.99)]


def run() -> list[dict[str, Any]]:
    """Of each engine that runs here: how many times slower it is, or why that is not known."""
    with tempfile.TemporaryDirectory() as folder:
        rig = Rig(Path(folder) / "cell")
        try:
            rig.start()
            engines = rig.get("/v1/cell").json()["engines"]
            versions = {each["engine"]: each["versions"][0] for each in engines}
            return [
                {"name": name, "reason": reason}
                if (reason := missing(rig, versions, name))
                else measure(rig, versions, name)
                for name in ENGINES
            ]
        finally:
            rig.destroy()


def show(cases: list[dict[str, Any]]) -> None:
    table = Table(title="Slowdown caused by a neighbor that uses all the CPU it can get")
    table.add_column("engine")
    for name in ("quiet p99 ms", "median", "p99", "at most", ""):
        table.add_column(name, justify="right")
    for case in cases:
        if "reason" in case:
            table.add_row(case["name"], "", "", "", "", case["reason"])
            continue
        verdict = "pass" if case["p99"] <= SLOWER_MAX else "FAIL"
        figures = (f"{case['p99_ms']:.2f}", f"{case['median']:.2f}", f"{case['p99']:.2f}")
        table.add_row(case["name"], *figures, f"{SLOWER_MAX:.1f}", verdict)
    console = Console()
    console.print(table)
    console.print(
        "The neighbor is a PostgreSQL with half a CPU and three busy connections; client, engine "
        "and neighbor share the machine's CPUs."
    )


if __name__ == "__main__":
    outcome = run()
    show(outcome)
    sys.exit(0 if all(case.get("p99", 0.0) <= SLOWER_MAX for case in outcome) else 1)
