"""Owns the benchmark of streams: 5,000 of them in one process, beside a bare server of as many.

They are of one organization: 100 people follow its events with 50 streams each, as many as one
may. Measured are what they take of memory, the CPU while nothing happens, and for how long and
with how much CPU an event is sent to all of them. Both servers are measured in the same run.
"""

import asyncio
import contextlib
import logging
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

import httpx
import psutil
import structlog
from rich.console import Console
from rich.table import Table

from contract_tests.api.harness import House
from contract_tests.api.streams import happen
from contract_tests.databases import DIALECTS, Databases
from tools.bench.memory import memory_mb
from tools.bench.ways import free_port

STREAMS: Final = 5_000
OF_ONE: Final = 50
IDLE_S: Final = 40.0
EVENTS: Final = 5
MEMORY_MB_MAX: Final = 300.0
RATIO_MAX: Final = 1.5
WITHIN_S: Final = 1.0
_OPENED_AT_ONCE: Final = 40
_SETTLE_S: Final = 5.0
_STARTED_S: Final = 60.0

Result = dict[str, float]


class Streams:
    """Clients that read what they are sent, and note when each of them has had the event."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._tasks: list[asyncio.Task[None]] = []
        self._writers: list[asyncio.StreamWriter] = []
        self.had: dict[int, int] = {}
        self.last_at = 0.0

    async def open(self, head: Callable[[int], bytes]) -> None:
        for begin in range(0, STREAMS, _OPENED_AT_ONCE):
            numbers = range(begin, min(begin + _OPENED_AT_ONCE, STREAMS))
            await asyncio.gather(*(self._open(number, head(number)) for number in numbers))

    async def _open(self, number: int, head: bytes) -> None:
        # A port for each: one address has some tens of thousands.
        reader, writer = await asyncio.open_connection("127.0.0.1", self._port)
        writer.write(head)
        begun = await reader.readuntil(b"id: ")
        assert begun.startswith(b"HTTP/1.1 200"), begun
        self._writers.append(writer)
        self._tasks.append(asyncio.ensure_future(self._read(number, reader)))

    async def _read(self, number: int, reader: asyncio.StreamReader) -> None:
        while line := await reader.readline():
            if line.startswith(b"data: "):
                self.had[number] = self.had.get(number, 0) + 1
                self.last_at = time.perf_counter()

    async def all_have(self, count: int) -> None:
        ends_at = time.perf_counter() + 60
        while sum(self.had.values()) < count * STREAMS:
            assert time.perf_counter() < ends_at, "an event did not come to all within a minute"
            await asyncio.sleep(0.02)
        assert set(self.had.values()) == {count}, "an event came twice"

    def close(self) -> None:
        for task in self._tasks:
            task.cancel()
        for writer in self._writers:
            writer.close()


async def _measure(
    process: psutil.Process, port: int, head: Callable[[int], bytes], publish: Callable[[], object]
) -> Result:
    before = memory_mb(process)
    streams = Streams(port)
    try:
        await streams.open(head)
        await asyncio.sleep(_SETTLE_S)
        memory, began, used = memory_mb(process), time.perf_counter(), _cpu_s(process)
        await asyncio.sleep(IDLE_S)
        idle = (_cpu_s(process) - used) / (time.perf_counter() - began)
        took, used = [], _cpu_s(process)
        for number in range(EVENTS):
            began = time.perf_counter()
            await asyncio.to_thread(publish)
            await streams.all_have(number + 1)
            took.append(streams.last_at - began)
        return {
            "rss_mb": memory["rss"],
            "pss_mb": memory["pss"],
            "kib_each": (memory["pss"] - before["pss"]) * 1024 / STREAMS,
            "idle_cpu": idle,
            "event_s": max(took),
            "event_cpu_s": (_cpu_s(process) - used) / EVENTS,
        }
    finally:
        streams.close()


def _cpu_s(process: psutil.Process) -> float:
    times = process.cpu_times()
    return float(times.user + times.system)


@contextlib.contextmanager
def _started(port: int, module: str, *words: str) -> Iterator[psutil.Process]:
    surroundings = {"MENAGERIE_ADDRESS_CONNECTIONS": str(2 * STREAMS)}
    command = [sys.executable, "-m", f"tools.bench.{module}", *words, str(port)]
    with subprocess.Popen(command, env=os.environ | surroundings) as process:
        try:
            until = time.monotonic() + _STARTED_S
            while True:
                assert time.monotonic() < until, "the server did not start"
                assert process.poll() is None, "the server ended"
                with contextlib.suppress(httpx.TransportError):
                    httpx.get(f"http://127.0.0.1:{port}/healthz")
                    break
                time.sleep(0.1)
            yield psutil.Process(process.pid)
        finally:
            process.terminate()


def _head(path: str, *fields: str) -> bytes:
    return "\r\n".join([f"GET {path} HTTP/1.1", "host: localhost", *fields, "", ""]).encode()


def _bare() -> Result:
    port = free_port()
    event = f'id: evt_1\ndata: {{"type": "instance.paused.v1", "text": "{"x" * 150}"}}\n\n'
    with _started(port, "streams_server") as process:
        address = f"http://127.0.0.1:{port}/publish"
        head = _head("/events")
        return asyncio.run(
            _measure(process, port, lambda _: head, lambda: httpx.post(address, content=event))
        )


def _ours(url: str, home: Path) -> Result:
    port = free_port()
    with House(url, home / "house") as house:
        tenant = house.tenant(plan="enterprise")
        people = [house.member(tenant.org_id, "admin") for _ in range(STREAMS // OF_ONE)]
        heads = [
            _head(f"{tenant.path}/events", f"authorization: Bearer {each.session}")
            for each in people
        ]
        with _started(port, "whole_way_server", "ours", url, str(home / "server")) as process:
            return asyncio.run(
                _measure(
                    process,
                    port,
                    lambda number: heads[number // OF_ONE],
                    lambda: happen(house, tenant.org_id, None),
                )
            )


def run() -> dict[str, Result]:
    """What streams take of the bare server, and of ours on both databases."""
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.ERROR))
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    found = {"bare Starlette": _bare()}
    databases = Databases()
    try:
        for dialect in DIALECTS:
            with tempfile.TemporaryDirectory(prefix="menagerie-bench-") as home:
                folder = Path(home)
                (folder / "house").mkdir()
                (folder / "server").mkdir()
                found[dialect] = _ours(databases.migrated(dialect), folder)
    finally:
        databases.close()
    return found


def show(found: dict[str, Result]) -> bool:
    table = Table(title=f"Streams: {STREAMS:,} in one process")
    names = ("server", "PSS", "of each", "x bare", "idle CPU", "x bare", "to all", "CPU", "x bare")
    for name in names:
        table.add_column(name, justify="left" if name == "server" else "right")
    bare, kept = found["bare Starlette"], True
    for name, each in found.items():
        ratios = [each[what] / bare[what] for what in ("kib_each", "idle_cpu", "event_cpu_s")]
        table.add_row(
            name,
            f"{each['pss_mb']:.0f} MB",
            f"{each['kib_each']:.1f} KiB",
            f"{ratios[0]:.2f}",
            f"{each['idle_cpu'] * 100:.1f} %",
            f"{ratios[1]:.2f}",
            f"{each['event_s'] * 1000:.0f} ms",
            f"{each['event_cpu_s'] * 1000:.0f} ms",
            f"{ratios[2]:.2f}",
        )
        kept &= each["pss_mb"] < MEMORY_MB_MAX and each["event_s"] <= WITHIN_S
        kept &= max(ratios) <= RATIO_MAX
    console = Console()
    console.print(table)
    console.print(
        f"Of {STREAMS // OF_ONE} people with {OF_ONE} streams each. Bars: PSS under"
        f" {MEMORY_MB_MAX:.0f} MB; memory of each stream, idle CPU and the CPU of an event at most"
        f" {RATIO_MAX} x bare; an event to all within {WITHIN_S:.0f} s. The bare server knows no"
        " caller and keeps no event."
    )
    print("kept" if kept else "FAIL")
    return kept


if __name__ == "__main__":
    sys.exit(0 if show(run()) else 1)
