"""Owns the benchmark of the search engine: 100,000 texts, indexed and asked for with typos.

The service is a process, as in an instance of the size s1, and is asked over its socket. For the
latencies it has one CPU and whoever asks has another. What it costs is compared with the same
searches in this process; how it grows, with the same texts in smaller and larger indexes.

usage: python -m tools.bench.search [DOCUMENTS [MANY_DOCUMENTS]]
"""

import contextlib
import os
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import httpx
import orjson
from rich.console import Console
from rich.table import Table

from cell.engines import search as engine
from contract_tests.search.process import Service, running
from control.policy.sizes import SIZES
from instance_services.search import answering, callers
from instance_services.search.allowance import Limits
from instance_services.search.boundary import SearchService
from instance_services.search.waking import IndexingProcess
from tools.bench.search_texts import documents, queries

DOCUMENTS: Final = 100_000
MANY: Final = 1_000_000
FEW_PART: Final = 10
SIZE: Final = SIZES["s1"]
BATCH: Final = 5_000
CHANGED: Final = 200
QUERIES: Final = 600
WARM: Final = 100
BUSY_SHARE: Final = 0.1
SETTINGS: Final = {
    "searchableAttributes": ["title", "text"],
    "filterableAttributes": ["kind", "area"],
    "sortableAttributes": ["words"],
}


@dataclass
class Served:
    """The service with an index of texts."""

    service: Service
    client: httpx.Client

    @property
    def pids(self) -> list[int]:
        """Of the service, and of the process that indexes."""
        own = self._own
        told = Path(f"/proc/{own}/task/{own}/children").read_text().split()
        return [own, *map(int, told)]

    @property
    def _own(self) -> int:
        assert self.service.process is not None
        return self.service.process.pid

    def add(self, texts: list[dict[str, Any]]) -> int:
        """The uid of the task."""
        body = orjson.dumps(texts)
        answer = self.client.post(
            "/indexes/texts/documents", content=body, headers={"Content-Type": "application/json"}
        )
        answer.raise_for_status()
        return int(answer.json()["taskUid"])

    def wait(self, uid: int) -> None:
        while (task := self.client.get(f"/tasks/{uid}").json())["status"] != "succeeded":
            assert task["status"] in {"enqueued", "processing"}, task
            time.sleep(0.01)

    def fill(self, texts: list[dict[str, Any]]) -> float:
        """Documents a second, until the last one can be searched."""
        settings = self.client.patch("/indexes/texts/settings", json=SETTINGS)
        self.wait(settings.json()["taskUid"])
        began = time.perf_counter()
        for start in range(0, len(texts), BATCH):
            last = self.add(texts[start : start + BATCH])
        self.wait(last)
        return len(texts) / (time.perf_counter() - began)

    def latencies(self, asked: list[str]) -> list[float]:
        """In ms, shortest first."""
        took = []
        for query in asked:
            began = time.perf_counter()
            answer = self.client.post("/indexes/texts/search", json={"q": query})
            took.append(1_000 * (time.perf_counter() - began))
            answer.raise_for_status()
        return sorted(took)

    def cpu_s(self, which: int) -> float:
        """Of the service (0) or of what indexes (1), until now."""
        _, _, fields = Path(f"/proc/{self.pids[which]}/stat").read_text().rpartition(") ")
        used = sum(map(int, fields.split()[11:13]))
        return used / os.sysconf("SC_CLK_TCK")

    def peak_bytes(self) -> int:
        """The most memory of both together."""
        found = 0
        for pid in self.pids:
            lines = Path(f"/proc/{pid}/status").read_text().splitlines()
            (line,) = [each for each in lines if each.startswith("VmHWM:")]
            found += 1_024 * int(line.split()[1])
        return found

    def runs_on(self, cpus: set[int]) -> None:
        for pid in self.pids:
            for thread in Path(f"/proc/{pid}/task").iterdir():
                os.sched_setaffinity(int(thread.name), cpus)

    @contextlib.contextmanager
    def indexing(self, texts: list[dict[str, Any]], share: float) -> Iterator[None]:
        """Documents change meanwhile, which takes that share of a CPU; 1 is without a pause."""
        ending = threading.Event()

        def change() -> None:
            start = 0
            while not ending.is_set():
                start = (start + CHANGED) % (len(texts) - CHANGED)
                before = self.cpu_s(1)
                changed = texts[start : start + CHANGED]
                self.wait(self.add([each | {"text": each["text"] + " again"} for each in changed]))
                ending.wait((self.cpu_s(1) - before) * (1 / share - 1))

        thread = threading.Thread(target=change)
        thread.start()
        try:
            yield
        finally:
            ending.set()
            thread.join()


@contextlib.contextmanager
def served() -> Iterator[Served]:
    with tempfile.TemporaryDirectory(prefix="bench") as folder:
        options = ["--indexing-bytes", str(SIZE.memory_bytes // 2)]
        options += ["--body-bytes", str(engine.payload_bytes(SIZE.memory_bytes))]
        with running(Path(folder), *options) as service, service.client() as client:
            yield Served(service, client)


def measure(texts: list[dict[str, Any]], asked: list[str]) -> dict[str, Any]:
    """All but how it grows."""
    found: dict[str, Any] = {}
    with served() as one:
        found["rate"] = one.fill(texts)
        one.latencies(asked[:WARM])
        found["quiet"] = one.latencies(asked)
        with one.indexing(texts, 1.0):
            found["heavy"] = one.latencies(asked)
        before = one.cpu_s(0)
        one.latencies(asked)
        found["served_ms"] = 1_000 * (one.cpu_s(0) - before) / len(asked)
        found["inside_ms"] = _inside(one.service.data, asked)
        everywhere = os.sched_getaffinity(0)
        one.runs_on({min(everywhere)})
        os.sched_setaffinity(0, everywhere - {min(everywhere)} or everywhere)
        try:
            found["alone"] = one.latencies(asked)
            with one.indexing(texts, BUSY_SHARE):
                found["busy"] = one.latencies(asked)
        finally:
            os.sched_setaffinity(0, everywhere)
        found["peak_bytes"] = one.peak_bytes()
    return found


def _inside(data: Path, asked: list[str]) -> float:
    """CPU of a search in this process, in ms: the same without HTTP."""
    masters = callers.MasterKeys(data.parent / "keys.json")
    service = SearchService(data, masters, IndexingProcess(data, Limits()))
    began = 0.0
    for number, query in enumerate([*asked[:WARM], *asked]):
        if number == WARM:
            began = time.process_time()
        orjson.dumps(answering.search(service, callers.MASTER, "texts", {"q": query}))
    return 1_000 * (time.process_time() - began) / len(asked)


def grown(texts: list[dict[str, Any]], asked: list[str]) -> float:
    """The median of an index with these texts, in ms."""
    with served() as one:
        one.fill(texts)
        one.latencies(asked[:WARM])
        return _part(one.latencies(asked), 0.5)


def run(count: int, many: int) -> dict[str, Any]:
    texts = documents(count)
    few = texts[: count // FEW_PART]
    asked = queries(few, QUERIES)
    found = measure(texts, asked)
    found["few"] = grown(few, asked)
    found["many"] = grown(documents(many), asked) if many else None
    return found


def _part(sorted_ms: list[float], part: float) -> float:
    return sorted_ms[int(len(sorted_ms) * part)]


def show(found: dict[str, Any], count: int, many: int) -> bool:
    """Whether all bars hold."""
    p95 = {name: _part(found[name], 0.95) for name in ("quiet", "heavy")}
    half = SIZE.memory_bytes // 2
    rows = [
        ("documents indexed a second", found["rate"], 5_000, False),
        ("p50 on one CPU, indexing for 10 %: ms", _part(found["busy"], 0.5), 10, True),
        ("p99 on one CPU, indexing for 10 %: ms", _part(found["busy"], 0.99), 40, True),
        ("p95 while indexing without a pause, x quiet", p95["heavy"] / p95["quiet"], 2, True),
        ("CPU through HTTP, x in process", found["served_ms"] / found["inside_ms"], 1.5, True),
        ("most memory, x half of the size's", found["peak_bytes"] / half, 1, True),
    ]
    if many:
        title = f"p50 of {many:,} documents, x {count // FEW_PART:,}"
        rows.append((title, found["many"] / found["few"], 3, True))
    table = Table(title=f"A search engine with {count:,} documents, asked with typos")
    for name in ("", "measured", "limit", ""):
        table.add_column(name, justify="left" if not name else "right")
    holds = True
    for title, value, limit, is_most in rows:
        good = value <= limit if is_most else value >= limit
        holds &= good
        sign = "≤" if is_most else "≥"
        table.add_row(title, f"{value:,.2f}", f"{sign} {limit:,}", "pass" if good else "FAIL")
    Console().print(table)
    for name, told in (("quiet", "quiet"), ("alone", "quiet, on one CPU"), ("busy", "indexing")):
        parts = ", ".join(f"p{part} {_part(found[name], part / 100):.2f}" for part in (50, 95, 99))
        print(f"{told}: {parts} ms")
    print(
        f"CPU of a search: {found['served_ms']:.2f} ms served, {found['inside_ms']:.2f} in process"
    )
    print("Texts are WordNet's: words and what they mean. Each query has a word with a mistake.")
    return holds


def main(words: list[str]) -> int:
    count = int(words[0]) if words else DOCUMENTS
    many = int(words[1]) if len(words) > 1 else MANY if not words else 0
    return 0 if show(run(count, many), count, many) else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
