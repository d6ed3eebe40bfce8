"""Engines that start and snapshots that are made wait for their turn, which is their tenant's."""

import asyncio
from collections.abc import Callable, Coroutine
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from cell.instances import snapshots, start_slots
from cell.instances.beginnings import Beginnings
from cell.instances.hosted import HostedInstance
from cell.instances.lifecycle import Lifecycle
from cell.instances.records import InstanceRecord
from cell.instances.start_slots import StartSlot
from cell.instances.supervisor import Supervisor
from cell.layout import Layout
from cell.runtime.process import Process
from cell.settings import CellSettings
from cell.specification import Size, Spec
from specserver.turns import Turns

NOTHING: Any = None
SIZE = Size("f0", 0.25, 2**28, 2**30, 20)
Act = Callable[[HostedInstance], Coroutine[Any, Any, Any]]


class Slow(Supervisor):
    """Its engines never come to run."""

    layout: Layout
    begun: list[str]
    other: asyncio.Event

    async def prepare(self, instance: HostedInstance) -> None:
        self.begun.append(instance.record.tenant)
        if instance.record.tenant == "other":
            self.other.set()
        await asyncio.Event().wait()


def supervisor_of(tmp_path: Path) -> Slow:
    settings, layout = CellSettings(tmp_path, "cell_x", b""), Layout.make(tmp_path)
    host: Any = SimpleNamespace(groups_of_console=list)
    beginnings = Beginnings(settings, layout, NOTHING, NOTHING, NOTHING, NOTHING)
    supervisor = Slow(settings, layout, host, NOTHING, NOTHING, NOTHING, NOTHING, beginnings)
    supervisor.layout, supervisor.begun, supervisor.other = layout, [], asyncio.Event()
    return supervisor


def instance_of(supervisor: Slow, number: int, tenant: str, person: str = "") -> HostedInstance:
    spec = Spec("x", "1", SIZE, "x.local", None, None, 0.0, tenant=tenant, person=person)
    record = InstanceRecord(f"inst_{number}", 1, spec, "running", None, 0.0)
    instance = HostedInstance(record, supervisor.layout.site(f"inst_{number}", 1), NOTHING)
    supervisor.instances[instance.instance_id] = instance
    return instance


def lifecycle_of(supervisor: Slow) -> Lifecycle:
    engines: Any = type("Found", (), {"drivers": {}, "refused": {}})
    settings = CellSettings(supervisor.layout.home, "cell_x", b"")
    return Lifecycle(settings, NOTHING, engines, NOTHING, NOTHING, supervisor)


async def soon(happens: Callable[[], bool]) -> None:
    async with asyncio.timeout(20):
        while not happens():  # noqa: ASYNC110 - what is looked at tells nobody
            await asyncio.sleep(0.01)


def crowd_and_other(tmp_path: Path, act: Callable[[Slow], Act], crowd: int) -> list[str]:
    """The tenants of those that were begun, of twenty of one tenant and then one of another.

    Waited for are as many of the crowd as may begin.
    """

    async def run() -> list[str]:
        supervisor = supervisor_of(tmp_path)
        tasks = []
        for number in range(21):
            instance = instance_of(supervisor, number, "crowd" if number < 20 else "other")
            tasks.append(asyncio.create_task(act(supervisor)(instance)))
        async with asyncio.timeout(60):
            await supervisor.other.wait()
        await soon(lambda: supervisor.begun.count("crowd") >= crowd)
        # One too many would begin now.
        await asyncio.sleep(0.05)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        return supervisor.begun

    return asyncio.run(run())


def test_starts_of_one_tenant_leave_places_to_others(tmp_path: Path) -> None:
    begun = crowd_and_other(tmp_path, lambda supervisor: supervisor.bring_up, 4)
    assert sorted(begun) == [*["crowd"] * 4, "other"]


def test_snapshots_of_one_tenant_leave_places_to_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def act(supervisor: Slow) -> Act:
        async def make(instance: HostedInstance, *_: object) -> None:
            await supervisor.prepare(instance)

        monkeypatch.setattr(snapshots, "make", make)
        monkeypatch.setattr(supervisor, "login", lambda _: None)
        lifecycle = lifecycle_of(supervisor)
        return lambda instance: lifecycle.snapshot(instance.instance_id, "x")

    assert sorted(crowd_and_other(tmp_path, act, 2)) == [*["crowd"] * 2, "other"]


def test_upgrades_of_one_tenant_leave_places_to_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def act(supervisor: Slow) -> Act:
        async def upgraded(instance: HostedInstance) -> None:
            driver: Any = SimpleNamespace(upgrade=lambda *_: supervisor.prepare(instance))
            instance.driver = driver
            await lifecycle.put(instance.instance_id, newer(instance))

        async def stop(_: HostedInstance) -> None: ...

        monkeypatch.setattr(supervisor, "stop", stop)
        lifecycle = lifecycle_of(supervisor)
        monkeypatch.setattr(lifecycle, "_find_or_make", lambda name, _: supervisor.instances[name])
        monkeypatch.setattr(lifecycle, "_settings", CellSettings(tmp_path, "cell_x", b""))
        return upgraded

    def newer(instance: HostedInstance) -> Spec:
        return replace(instance.record.spec, engine_version="2")

    assert sorted(crowd_and_other(tmp_path, act, 2)) == [*["crowd"] * 2, "other"]


def test_organizations_of_one_person_share_the_places_of_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def run() -> list[str]:
        supervisor = supervisor_of(tmp_path)

        async def make(instance: HostedInstance, *_: object) -> None:
            await supervisor.prepare(instance)

        monkeypatch.setattr(snapshots, "make", make)
        monkeypatch.setattr(supervisor, "login", lambda _: None)
        lifecycle = lifecycle_of(supervisor)
        whose = [(f"org{number}", "crowd") for number in range(10)] + [("other", "another")]
        made = [instance_of(supervisor, at, *each) for at, each in enumerate(whose)]
        tasks = [asyncio.create_task(lifecycle.snapshot(each.instance_id, "x")) for each in made]
        async with asyncio.timeout(20):
            await supervisor.other.wait()
        await asyncio.sleep(0.05)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        return supervisor.begun

    assert sorted(asyncio.run(run())) == ["org0", "org1", "other"]


def test_upgrades_keep_no_copy_waiting(tmp_path: Path) -> None:
    pools = supervisor_of(tmp_path).pools
    while any(pools.upgrades.beginning.try_enter(f"tenant {number}") for number in range(4)):
        pass
    assert pools.copies.beginning.try_enter("another")


def test_a_snapshot_that_waits_for_its_own_instance_takes_no_place(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Four organizations whose instances are occupied leave all slots to a fifth."""

    async def run() -> list[str]:
        supervisor = supervisor_of(tmp_path)
        made: list[str] = []

        async def make(instance: HostedInstance, *_: object) -> None:
            made.append(instance.record.tenant)

        monkeypatch.setattr(snapshots, "make", make)
        monkeypatch.setattr(supervisor, "login", lambda _: None)
        lifecycle = lifecycle_of(supervisor)
        occupied = [instance_of(supervisor, number, f"org{number}") for number in range(4)]
        for instance in occupied:
            await instance.lock.acquire()
        names = [each.instance_id for each in occupied for _ in range(2)]
        waiting = [asyncio.create_task(lifecycle.snapshot(name, "x")) for name in names]
        await asyncio.sleep(0)
        newcomer = instance_of(supervisor, 4, "newcomer")
        async with asyncio.timeout(20):
            await lifecycle.snapshot(newcomer.instance_id, "x")
        before = made.copy()
        for instance in occupied:
            instance.lock.release()
        await asyncio.gather(*waiting)
        assert len(made) == 9
        return before

    assert asyncio.run(run()) == ["newcomer"]


def test_starts_that_go_on_for_long_leave_their_places(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Six organizations with four slow engines each hold every slot, for some seconds."""
    monkeypatch.setattr(start_slots, "SLOT_S", 0.05)

    async def run() -> list[str]:
        supervisor = supervisor_of(tmp_path)
        slow = [instance_of(supervisor, number, f"org{number % 6}") for number in range(24)]
        tasks = [asyncio.create_task(supervisor.bring_up(each)) for each in slow]
        await soon(lambda: len(supervisor.begun) >= 10)
        newcomer = instance_of(supervisor, 24, "other")
        tasks.append(asyncio.create_task(supervisor.bring_up(newcomer)))
        await soon(lambda: len(supervisor.begun) == 25)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        assert all(pool.try_enter("x") for pool in (supervisor.pools.starts,) * 4)
        return supervisor.begun

    assert asyncio.run(run()).count("other") == 1


class Cpus:
    """Notes what each engine may use."""

    def __init__(self) -> None:
        self.of: dict[Any, float | None] = {}

    def limit_cpu(self, process: Any, vcpu: float | None) -> None:
        self.of[process] = vcpu


def test_slow_starts_have_a_cpu_in_turn_and_otherwise_that_of_their_size(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(start_slots, "SLOT_S", 0.01)

    async def run() -> None:
        supervisor, cpus = supervisor_of(tmp_path), Cpus()
        supervisor.pools.slow_starts = Turns(1, 1, waiting_of_one=9)
        host: Any = cpus
        slow = [instance_of(supervisor, number, f"org{number}") for number in range(3)]
        slots = [StartSlot(supervisor.pools, host, each) for each in slow]
        for number, (instance, slot) in enumerate(zip(slow, slots, strict=True)):
            instance.engine_started(cast("Process", number))
            await slot.__aenter__()
            slot.limit_cpu()
        assert not cpus.of, "without a limit for the first seconds"
        await soon(lambda: len(cpus.of) == 3)
        assert sorted(cpus.of.items()) == [(0, 1.0), (1, 0.25), (2, 0.25)]
        assert (slots[0].waited_s, slots[1].waited_s > 0) == (0, True)
        await slots[0].__aexit__(None, None, None)
        await soon(lambda: cpus.of[1] == 1.0)
        waited_s = slots[1].waited_s
        await asyncio.sleep(0.02)
        assert slots[1].waited_s == waited_s < slots[2].waited_s
        for slot in slots[1:]:
            await slot.__aexit__(None, None, None)
        await asyncio.sleep(0)
        assert supervisor.pools.slow_starts.try_enter("x")

    asyncio.run(run())


def test_those_that_start_slowly_take_turns(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One that reads its data for a quarter of an hour keeps no other from a CPU for as long."""
    monkeypatch.setattr(start_slots, "SLOT_S", 0.0)
    monkeypatch.setattr(start_slots, "SLOW_FOR_S", 0.05)
    monkeypatch.setattr(start_slots, "LOOK_EVERY_S", 0.01)
    cpus = Cpus()

    async def run() -> None:
        supervisor = supervisor_of(tmp_path)
        supervisor.pools.slow_starts = Turns(1, 1, waiting_of_one=9, waiting=9)
        whose = [("one", "person"), ("two", "person"), ("three", "another")]
        slow = [instance_of(supervisor, at, *each) for at, each in enumerate(whose)]
        slots = [StartSlot(supervisor.pools, cast("Any", cpus), each) for each in slow]
        for number, (instance, slot) in enumerate(zip(slow, slots, strict=True)):
            instance.engine_started(cast("Process", number))
            await slot.__aenter__()
        had: set[int] = set()

        def all_had_one() -> bool:
            had.update(number for number, vcpu in cpus.of.items() if vcpu == 1.0)
            return had == {0, 1, 2}

        await soon(all_had_one)
        for slot in slots:
            await slot.__aexit__(None, None, None)
        await asyncio.sleep(0)
        assert supervisor.pools.slow_starts.try_enter("x")

    asyncio.run(run())
