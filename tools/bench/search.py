"""Owns the benchmark of the search engine: real texts, and queries with typos.

The service is on one core, and whoever asks it on another. With "million", growth is measured up to
1,000,000 documents, which takes some minutes.

usage: python -m tools.bench.search [million]
"""

import statistics
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any, Final

import orjson
from rich.console import Console
from rich.table import Table

from instance_services.search import results
from instance_services.search.searching import Search
from instance_services.search.snapshots import Snapshots
from tools import usage
from tools.bench import search_service, search_texts
from tools.bench.search_service import FilledService, cpu_s

COUNT: Final = 100_000
FEW: Final = 10_000
MILLION: Final = 1_000_000
BATCH: Final = 10_000
"""Documents of a request, when all are added."""
SMALL_BATCH: Final = 100
QUERIES: Final = 1_000
WARM_UP: Final = 50
HEAVY_BATCH: Final = 2_000
CPU_QUERIES: Final = 300
TURNS: Final = 5
LIGHT: Final = 0.1


@dataclass(frozen=True)
class Bar:
    """One measurement and its limit; `is_least` where more is better."""

    name: str
    value: float
    limit: float
    unit: str
    is_least: bool = False

    @property
    def is_kept(self) -> bool:
        return self.value >= self.limit if self.is_least else self.value <= self.limit


def quantile(times: Sequence[float], part: float) -> float:
    return sorted(times)[int(len(times) * part)]


def _grown(some: list[dict[str, Any]], queries: Sequence[str], count: int) -> float:
    """The median of searches among so many documents, in seconds."""
    with _service() as filled:
        filled.set_up(search_texts.SETTINGS)
        filled.fill(search_texts.batches(search_texts.documents(some, count), BATCH))
        filled.search_times(queries[:WARM_UP])
        return statistics.median(filled.search_times(queries))


@contextmanager
def _service() -> Iterator[FilledService]:
    """In a folder of its own, which is gone afterwards."""
    with (
        tempfile.TemporaryDirectory(prefix="menagerie-bench-") as home,
        search_service.on_one_core(Path(home)) as filled,
    ):
        yield filled


def _cpu_ratio(filled: FilledService, queries: Sequence[str]) -> float:
    """What a search costs through HTTP, of what it costs in this process; after some to warm up."""
    server = filled.processes[0]
    snapshots = Snapshots(filled.service.data)

    def in_process(query: str) -> None:
        given = {"q": query}
        snapshots.begin()
        with snapshots.index(search_service.INDEX) as state:
            one = Search(state, given)
            orjson.dumps(results.answer(state, one, one.find(), given, 0))

    def inside_s(some: Sequence[str]) -> float:
        before = time.process_time()
        for query in some:
            in_process(query)
        return time.process_time() - before

    def outside_s(some: Sequence[str]) -> float:
        before = cpu_s(server)
        filled.search_times(some)
        return cpu_s(server) - before

    inside_s(queries[:WARM_UP])
    # In turns, so that other load on the machine is in both.
    parts = [queries[first::TURNS] for first in range(TURNS)]
    found = [(outside_s(part), inside_s(part)) for part in parts]
    return sum(each for each, _ in found) / sum(each for _, each in found)


def _all(some: list[dict[str, Any]], queries: Sequence[str]) -> tuple[list[Bar], float]:
    """All but growth; and the median of searches when nothing is indexed, in seconds."""
    with _service() as filled:
        filled.set_up(search_texts.SETTINGS)
        given = list(search_texts.documents(some, COUNT))
        filled_s = filled.fill(search_texts.batches(iter(given), BATCH))
        filled.search_times(queries[:WARM_UP])
        quiet = filled.search_times(queries)
        small = list(search_texts.batches(islice(given, BATCH), SMALL_BATCH))
        with filled.beside_indexing(small, LIGHT):
            light = filled.search_times(queries)
        large = list(search_texts.batches(islice(given, 5 * HEAVY_BATCH), HEAVY_BATCH))
        with filled.beside_indexing(large, 1.0):
            heavy = filled.search_times(queries)
        ratio = _cpu_ratio(filled, queries[:CPU_QUERIES])
        most_mb = filled.most_mb
    bars = [
        Bar("median, indexing 10 % of the time", quantile(light, 0.5) * 1e3, 10.0, "ms"),
        Bar("p99, indexing 10 % of the time", quantile(light, 0.99) * 1e3, 40.0, "ms"),
        Bar(
            "p95 during heavy indexing, x quiet",
            quantile(heavy, 0.95) / quantile(quiet, 0.95),
            2.0,
            "",
        ),
        Bar("CPU of a search through HTTP, x in process", ratio, 1.5, ""),
        Bar("documents indexed per second", COUNT / filled_s, 5_000.0, "", is_least=True),
        Bar("most memory", most_mb, search_service.SIZE_BYTES / 2**21, "MiB"),
    ]
    return bars, quantile(quiet, 0.5)


def run(*, million: bool) -> list[Bar]:
    some = search_texts.synsets()
    queries = search_texts.queries(some[:FEW], QUERIES)
    few_s = _grown(some, queries, FEW)
    bars, many_s = _all(some, queries)
    bars.append(Bar(f"median, {COUNT:,} / {FEW:,} documents", many_s / few_s, 3.0, ""))
    if million:
        most_s = _grown(some, queries, MILLION)
        bars.append(Bar(f"median, {MILLION:,} / {FEW:,} documents", most_s / few_s, 3.0, ""))
    return bars


def show(bars: Sequence[Bar]) -> None:
    table = Table(title=f"Search among {COUNT:,} texts of WordNet, by queries with typos")
    for name in ("measured", "", "limit", ""):
        table.add_column(name, justify="left" if name == "measured" else "right")
    for each in bars:
        unit = f" {each.unit}" if each.unit else ""
        digits = 0 if each.limit > 100 else 2  # noqa: PLR2004 - percent of a limit
        table.add_row(
            each.name,
            f"{each.value:,.{digits}f}{unit}",
            f"at {'least' if each.is_least else 'most'} {each.limit:,.0f}{unit}"
            if each.limit >= 10  # noqa: PLR2004 - its digits
            else f"at most {each.limit}",
            "pass" if each.is_kept else "FAIL",
        )
    console = Console()
    console.print(table)
    console.print(
        "The service and its indexing have one core, one client has another; the memory is that of "
        "both processes, of the size s1."
    )


def main(given: list[str]) -> int:
    if usage.is_asked(given, __doc__):
        return 0
    if given not in ([], ["million"]):
        print("usage: python -m tools.bench.search [million]")
        return 2
    bars = run(million=bool(given))
    show(bars)
    return int(not all(each.is_kept for each in bars))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
