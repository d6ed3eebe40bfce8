"""Owns the service that the benchmark of search asks: on one core, filled, and beside indexing."""

import os
import threading
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from itertools import cycle
from pathlib import Path
from typing import Any, Final

import httpx
import psutil

from cell.engines.search import payload_bytes
from contract_tests.search.process import Service, running
from tools.bench.memory import memory_mb

INDEX: Final = "texts"
SIZE_BYTES: Final = 2 * 2**30
"""The memory of the smallest size, s1."""
_LOOK_S: Final = 0.25
_TASK_LOOK_S: Final = 0.005
_TASK_S: Final = 120.0


class FilledService:
    """The process and that of its indexing, and one client with one connection for searches."""

    def __init__(self, service: Service) -> None:
        assert service.process is not None
        self.service = service
        self.client = service.client()
        main = psutil.Process(service.process.pid)
        self.processes = [main, *main.children(recursive=True)]
        self.most_mb = 0.0
        self._ended = threading.Event()
        self._watching = threading.Thread(target=self._watch)
        self._watching.start()

    def search(self, query: str) -> None:
        answer = self.client.post(f"/indexes/{INDEX}/search", json={"q": query})
        assert answer.status_code == httpx.codes.OK, answer.text

    def search_times(self, queries: Iterable[str]) -> list[float]:
        """Of each, in seconds, one after the other."""
        took = []
        for query in queries:
            began = time.perf_counter()
            self.search(query)
            took.append(time.perf_counter() - began)
        return took

    def set_up(self, settings: dict[str, Any]) -> None:
        self.service.done("PATCH", f"/indexes/{INDEX}/settings", settings)

    def fill(self, batches: Iterable[list[dict[str, Any]]]) -> float:
        """How long it took until the last of the documents could be found, in seconds."""
        began = time.perf_counter()
        with self.service.client() as client:
            for batch in batches:
                last = _added(client, batch)
            _finish(client, last)
        return time.perf_counter() - began

    @contextmanager
    def beside_indexing(
        self, batches: Iterable[list[dict[str, Any]]], share: float
    ) -> Iterator[None]:
        """Documents are replaced, in batches with pauses: indexing has this share of a core.

        With a share of 1 there are no pauses.
        """
        ending = threading.Event()
        thread = threading.Thread(target=self._index, args=(batches, share, ending))
        thread.start()
        try:
            yield
        finally:
            ending.set()
            thread.join()

    def _index(
        self, batches: Iterable[list[dict[str, Any]]], share: float, ending: threading.Event
    ) -> None:
        with self.service.client() as client:
            for batch in cycle(batches):
                before = sum(cpu_s(each) for each in self.processes[1:])
                _finish(client, _added(client, batch))
                took_s = sum(cpu_s(each) for each in self.processes[1:]) - before
                if ending.wait(took_s * (1 / share - 1)):
                    return

    def _watch(self) -> None:
        """What both processes have together, at most; pages that they share count once."""
        while not self._ended.wait(_LOOK_S):
            with suppress(OSError):
                found_mb = sum(memory_mb(each)["pss"] for each in self.processes)
                self.most_mb = max(self.most_mb, found_mb)

    def close(self) -> None:
        self._ended.set()
        self._watching.join()
        self.client.close()


def cpu_s(process: psutil.Process) -> float:
    """Of all its threads."""
    # As clock_getcpuclockid(3) names it.
    return time.clock_gettime(~process.pid << 3 | 2)


def _added(client: httpx.Client, batch: list[dict[str, Any]]) -> int:
    answer = client.post(f"/indexes/{INDEX}/documents", json=batch)
    assert answer.status_code == httpx.codes.ACCEPTED, answer.text
    return int(answer.json()["taskUid"])


def _finish(client: httpx.Client, uid: int) -> None:
    end = time.monotonic() + _TASK_S
    while (task := client.get(f"/tasks/{uid}").json())["status"] in {"enqueued", "processing"}:
        assert time.monotonic() < end, task
        time.sleep(_TASK_LOOK_S)
    assert task["status"] == "succeeded", task


@contextmanager
def on_one_core(home: Path) -> Iterator[FilledService]:
    """As an instance of s1 is started; whoever measures has the other cores, where there are any.

    It may use all of a core, where s1 has half of one.
    """
    cores = sorted(os.sched_getaffinity(0))
    options = ["--body-bytes", str(payload_bytes(SIZE_BYTES))]
    options += ["--indexing-bytes", str(SIZE_BYTES // 2)]
    os.sched_setaffinity(0, cores[-1:])
    try:
        with running(home, *options) as service:
            os.sched_setaffinity(0, cores[:-1] or cores)
            filled = FilledService(service)
            try:
                yield filled
            finally:
                filled.close()
    finally:
        os.sched_setaffinity(0, cores)
