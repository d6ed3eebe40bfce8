"""Owns the benchmark of egress: queries through a gateway that reports it, and one that does not.

Two gateways of one worker each in front of one PostgreSQL; pgbench drives them in turns, and each
round is compared with itself, so that other load mostly cancels out.
"""

import contextlib
import datetime as dt
import statistics
import sys
import tempfile
from pathlib import Path
from typing import Any, Final

from rich.console import Console

from cell.certificates import pki
from cell.instances import egress
from tools.bench.gateway_postgres import WayToServer, gateway, installed, pgbench, server

ROUNDS: Final = 10
SECONDS: Final = 3
CLIENTS: Final = 8
PLAIN, REPORTING = "gateway", "gateway that reports egress"
LEAST: Final = 0.98


def run(rounds: int = ROUNDS) -> dict[str, Any]:
    if not installed("pgbench") or not installed("postgres"):
        return {"skipped": "PostgreSQL's server and pgbench are not installed", "kept": True}
    with tempfile.TemporaryDirectory(prefix="bench") as directory, contextlib.ExitStack() as held:
        home = Path(directory)
        home.chmod(0o755)
        made = pki.ensure(home, "local", "localhost", dt.datetime.now(dt.UTC))
        (home / "pki").chmod(0o755)
        direct = held.enter_context(server(home, made))
        ways = [
            held.enter_context(gateway(home, direct, made, 1, each)) for each in (PLAIN, REPORTING)
        ]
        reports = home / REPORTING.replace(" ", "") / "egress"
        reports.mkdir()
        egress.collect(reports, ["inst_bench"], ())
        for way in ways:
            pgbench(way, "-c", "2", seconds=11)  # long enough that reporting has begun
        for number in range(rounds):
            for way in ways if number % 2 else reversed(ways):
                measure(way)
        found = egress.collect(reports, ["inst_bench"], ())
        assert found, "nothing was reported"
    return judge(*ways)


def measure(way: WayToServer) -> None:
    cpu_s = way.cpu_s()
    per_s = pgbench(way, "-c", str(CLIENTS), "-j", "2", seconds=SECONDS)
    way.note("queries_per_s", per_s)
    way.note("cpu_us_per_query", (way.cpu_s() - cpu_s) * 1e6 / (per_s * SECONDS))


def judge(plain: WayToServer, reporting: WayToServer) -> dict[str, Any]:
    def ratio(what: str) -> float:
        pairs = zip(reporting.rounds[what], plain.rounds[what], strict=True)
        return statistics.median(one / other for one, other in pairs)

    per_query = ratio("cpu_us_per_query")
    queries = ratio("queries_per_s")
    measured = {
        way.name: {what: way.median(what) for what in way.rounds} for way in (plain, reporting)
    }
    ratios = {"queries_per_s": queries, "cpu_us_per_query": per_query}
    return {"measured": measured, "ratios": ratios, "kept": queries >= LEAST}


def show(result: dict[str, Any]) -> None:
    console = Console()
    if "skipped" in result:
        console.print(f"Egress: not measured, because {result['skipped']}.")
        return
    for name, figures in result["measured"].items():
        queries, cpu_us = figures["queries_per_s"], figures["cpu_us_per_query"]
        console.print(f"{name}: {queries:,.0f} queries/s, {cpu_us:.1f} µs of CPU each")
    ratios = result["ratios"]
    console.print(
        f"queries/s, x without reports: {ratios['queries_per_s']:.3f}, at least {LEAST}"
        f"{'' if result['kept'] else ' FAIL'}; CPU: {ratios['cpu_us_per_query']:.3f}"
    )


if __name__ == "__main__":
    outcome = run()
    show(outcome)
    sys.exit(0 if outcome["kept"] else 1)
