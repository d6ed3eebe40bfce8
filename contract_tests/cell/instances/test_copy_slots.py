"""Copies that take long keep nobody waiting: not for a place, a thread, a lock or a processor."""

import asyncio
import os
import subprocess
import threading
from collections.abc import Callable, Coroutine, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from cell.engines import duckdb, file_snapshots, search
from cell.engines.mysql import snapshots as mysql_snapshots
from cell.engines.postgres import archive, backup
from cell.engines.resp import files as resp_files
from cell.engines.resp.driver import Redis
from cell.instances import bounds, copy_slots, snapshots
from cell.instances.copy_slots import CopySlot
from cell.instances.hosted import HostedInstance
from cell.instances.pools import CopyLimits
from cell.runtime import budget, pace, priority
from cell.runtime.host import Host
from cell.runtime.pace import Pace
from cell.settings import CellSettings
from contract_tests.cell.instances.test_turns import (
    NOTHING,
    Slow,
    instance_of,
    lifecycle_of,
    soon,
    supervisor_of,
)

Act = Callable[[HostedInstance], Coroutine[Any, Any, Any]]
Work = Callable[[Slow, pytest.MonkeyPatch], Act]


def slow_supervisor(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Slow:
    """Its copies never end, and leave their places soon."""
    monkeypatch.setattr(copy_slots, "SLOT_S", 0.05)
    supervisor = supervisor_of(tmp_path)
    host: Any = SimpleNamespace(strays=lambda _: [], owner=lambda _: None)
    supervisor.host = host
    return supervisor


def snapshot(supervisor: Slow, monkeypatch: pytest.MonkeyPatch) -> Act:
    monkeypatch.setattr(snapshots, "make", lambda each, *_: supervisor.prepare(each))
    monkeypatch.setattr(supervisor, "login", lambda _: None)
    lifecycle = lifecycle_of(supervisor)
    return lambda instance: lifecycle.snapshot(instance.instance_id, "x")


def begin(supervisor: Slow, monkeypatch: pytest.MonkeyPatch) -> Act:
    monkeypatch.setattr(supervisor.beginnings, "is_owed", lambda _: True)
    monkeypatch.setattr(supervisor.beginnings, "begin", supervisor.prepare)
    return supervisor.bring_up


def upgrade(supervisor: Slow, monkeypatch: pytest.MonkeyPatch) -> Act:
    async def upgraded(instance: HostedInstance) -> None:
        driver: Any = SimpleNamespace(upgrade=lambda *_: supervisor.prepare(instance))
        instance.driver = driver
        spec = replace(instance.record.spec, engine_version="2")
        await lifecycle.put(instance.instance_id, spec)

    async def stop(_: HostedInstance) -> None: ...

    monkeypatch.setattr(supervisor, "stop", stop)
    lifecycle = lifecycle_of(supervisor)
    monkeypatch.setattr(lifecycle, "_find_or_make", lambda name, _: supervisor.instances[name])
    settings = CellSettings(supervisor.layout.home, "cell_x", b"")
    monkeypatch.setattr(lifecycle, "_settings", settings)
    return upgraded


works = pytest.mark.parametrize("work", [snapshot, begin, upgrade])


async def end(tasks: list[asyncio.Task[Any]]) -> None:
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


@works
def test_slow_copies_leave_their_places_to_others_and_their_owners_have_no_more_of_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, work: Work
) -> None:
    async def run() -> list[str]:
        supervisor = slow_supervisor(tmp_path, monkeypatch)
        act, tasks = work(supervisor, monkeypatch), []
        for number in range(12):
            # Three organizations of each person.
            instance = instance_of(supervisor, number, f"org{number}", f"person{number % 4}")
            tasks.append(asyncio.create_task(act(instance)))
        await soon(lambda: len(supervisor.begun) == 8)
        tasks.append(asyncio.create_task(act(instance_of(supervisor, 12, "other", "another"))))
        async with asyncio.timeout(20):
            await supervisor.other.wait()
        # By now all have left their places, and one too many would begin.
        await asyncio.sleep(0.2)
        await end(tasks)
        pools = supervisor.pools
        for places in (pools.copies, pools.upgrades):
            assert all(places.beginning.try_enter(number) for number in range(4))
            assert all(places.in_progress.try_enter(number) for number in range(16))
        return supervisor.begun

    begun = asyncio.run(run())
    assert sorted(begun[:8]) == sorted(f"org{number}" for number in range(8))
    assert begun[8:] == ["other"]


def test_of_those_that_go_on_the_last_places_are_for_whoever_has_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A few with many organizations hold what they may; others still begin, up to the bound."""

    async def run() -> list[str]:
        supervisor = slow_supervisor(tmp_path, monkeypatch)
        supervisor.pools.copies = CopyLimits(6)
        act = snapshot(supervisor, monkeypatch)
        whose = [*(["a", "b", "c"] * 2), "d", "e", "f"]
        tasks = []
        for number, tenant in enumerate(whose):
            tasks.append(asyncio.create_task(act(instance_of(supervisor, number, tenant))))
            await asyncio.sleep(0)
        await soon(lambda: len(supervisor.begun) == 6)
        await asyncio.sleep(0.2)
        await end(tasks)
        return supervisor.begun

    assert sorted(asyncio.run(run())) == ["a", "a", "b", "c", "d", "e"]


@pytest.mark.parametrize("work", [snapshot, upgrade])
def test_what_waits_for_a_place_leaves_its_instance_to_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, work: Work
) -> None:
    """As to a deletion, or to the restart of an engine that has ended."""
    # A place that is not given back at once is not given back in time either.
    monkeypatch.setattr(copy_slots, "SLOT_S", 1000.0)

    async def run() -> None:
        supervisor = supervisor_of(tmp_path)
        act = work(supervisor, monkeypatch)
        pools = supervisor.pools
        pool = pools.copies if work is snapshot else pools.upgrades
        places = pool.beginning
        for number in range(4):
            await places.enter(f"org{number}")
        instance = instance_of(supervisor, 0, "other")
        waiting = asyncio.create_task(act(instance))
        await soon(lambda: places.is_wanted)
        async with asyncio.timeout(20), instance.lock:
            places.leave("org0")
            # Its turn comes while somebody has the instance: that takes no place from others.
            await soon(lambda: places.try_enter("newcomer"))
            assert not supervisor.begun
        places.leave("newcomer")
        await soon(lambda: supervisor.begun == ["other"])
        assert instance.lock.locked()
        await end([waiting])
        assert not instance.lock.locked()
        assert pool.in_progress.try_enter("other")

    asyncio.run(run())


@pytest.mark.parametrize("work", [begin, upgrade])
def test_a_deletion_ends_the_wait_for_a_place(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, work: Work
) -> None:
    async def run() -> None:
        supervisor = slow_supervisor(tmp_path, monkeypatch)
        act = work(supervisor, monkeypatch)
        pools = supervisor.pools
        for places in (pools.copies, pools.upgrades):
            for number in range(4):
                await places.beginning.enter(f"org{number}")
        instance = instance_of(supervisor, 0, "other")

        async def holding_the_lock() -> None:
            async with instance.lock:
                await act(instance)

        waits = act(instance) if work is upgrade else holding_the_lock()
        waiting = asyncio.create_task(waits)
        await soon(lambda: bool(instance.waits))
        async with asyncio.timeout(20), bounds.locked_to_remove(supervisor.host, instance):
            assert not supervisor.begun
        with pytest.raises(Exception, match="being deleted"):
            await waiting
        for places in (pools.copies, pools.upgrades):
            places.beginning.leave("org0")
            assert places.beginning.try_enter("other")
            assert places.in_progress.try_enter("other")

    asyncio.run(run())


SITE: Any = SimpleNamespace(data="data", directory=Path("/nowhere"))
COPIED: dict[str, tuple[Any, str, Callable[[Path], Coroutine[Any, Any, Any]]]] = {
    "postgres": (
        *(archive, "pack_into"),
        lambda _: backup.copy(SITE, NOTHING, None, NOTHING),
    ),
    "duckdb": (
        *(file_snapshots, "copy"),
        lambda target: duckdb.DuckDB.snapshot(NOTHING, SITE, None, NOTHING, target),
    ),
    "meilisearch": (
        *(file_snapshots, "copy"),
        lambda target: search.SearchEngine.snapshot(NOTHING, SITE, None, NOTHING, target),
    ),
    "mariadb": (
        *(mysql_snapshots.Copier, "_copy"),
        lambda target: mysql_snapshots.Copier(NOTHING, NOTHING, SITE).of_stopped(target),
    ),
    "redis": (
        *(resp_files, "copy_log"),
        lambda target: Redis.snapshot(NOTHING, SITE, None, NOTHING, target),
    ),
    "a tool": (*(Host, "_run"), lambda _: Host.run(Host.__new__(Host), SITE, [])),
}


@pytest.mark.parametrize("engine", COPIED)
def test_copies_hold_none_of_the_threads_that_others_need(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, engine: str
) -> None:
    where, name, copy = COPIED[engine]
    may_end = threading.Event()
    monkeypatch.setattr(where, name, lambda *_: may_end.wait(60))

    async def run() -> None:
        asyncio.get_running_loop().set_default_executor(ThreadPoolExecutor(1))
        copying = asyncio.create_task(copy(tmp_path / "target"))
        await asyncio.sleep(0)
        try:
            async with asyncio.timeout(20):
                assert await asyncio.to_thread(int, "1") == 1
                assert not copying.done()
        finally:
            may_end.set()
        await copying

    asyncio.run(run())


class Clock:
    """Time passes only where somebody sleeps."""

    def __init__(self) -> None:
        self.now = 100.0
        self.slept: list[float] = []

    def monotonic(self) -> float:
        return self.now

    def sleep(self, for_s: float) -> None:
        self.slept.append(round(for_s, 6))


def test_slow_copies_work_together_as_fast_as_a_few(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock()
    monkeypatch.setattr(pace, "time", clock)
    monkeypatch.setattr(pace, "AT_ONCE", 2)
    monkeypatch.setattr(pace, "_SEEN", {})
    paces = [Pace() for _ in range(6)]

    def block(own: Pace) -> float:
        clock.slept.clear()
        own._since, clock.now = clock.now, clock.now + 0.1
        own.rest()
        return sum(clock.slept)

    assert [block(each) for each in paces] == [0] * 6, "those with a place never rest"
    for each in paces:
        each.slow = True
    assert [block(each) for each in paces] == [0, 0, 0.05, 0.1, 0.15, 0.2]
    paces[0].end()
    assert block(paces[1]) == 0.15
    clock.now += 10
    assert block(paces[1]) == 0, "the others wait for their engines"
    pace.keep(paces[1])
    with pace.without_rests():
        pace.rest()
    assert clock.slept == [0]
    pace.keep(None)


@pytest.fixture
def sleepers() -> Iterator[list[int]]:
    made = [subprocess.Popen(["/bin/sleep", "60"]) for _ in range(2)]
    yield [each.pid for each in made]
    for each in made:
        each.kill()
        each.wait()


def test_tools_of_a_slow_copy_have_a_low_priority_and_its_engine_keeps_its_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, sleepers: list[int]
) -> None:
    monkeypatch.setattr(copy_slots, "SLOT_S", 0.0)
    engine, tool = sleepers
    former = os.getpriority(os.PRIO_PROCESS, engine)

    async def run() -> None:
        supervisor = supervisor_of(tmp_path)
        instance = instance_of(supervisor, 0, "org")
        process: Any = SimpleNamespace(tree=lambda: [engine])
        instance.engine_started(process)
        host: Any = SimpleNamespace(strays=lambda _: [engine, tool, 2**22 + 1])
        async with CopySlot(supervisor.pools.copies, host, instance):
            await soon(lambda: os.getpriority(os.PRIO_PROCESS, tool) == priority.NICE)
        assert os.getpriority(os.PRIO_PROCESS, engine) == former

    asyncio.run(run())


def test_a_copy_ends_soon_after_nobody_waits_for_it_any_more() -> None:
    """Else its thread would hold up the end of the cell."""
    begun, ended = threading.Event(), threading.Event()

    def copy() -> None:
        try:
            while True:
                begun.set()
                budget.spend(1)
                budget.go_on()
        except budget.CopyError:
            ended.set()

    async def run() -> None:
        async def copied() -> None:
            with budget.limit(2**60):
                await asyncio.to_thread(copy)

        copying = asyncio.create_task(copied())
        await soon(begun.is_set)
        await end([copying])
        await soon(ended.is_set)

    asyncio.run(run())
