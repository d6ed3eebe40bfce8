"""Engines that start and snapshots that are made wait for their turn, which is their tenant's."""

import asyncio
from collections.abc import Callable, Coroutine
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from cell import snapshots
from cell.layout import Layout
from cell.lifecycle import Lifecycle
from cell.records import Record, Size, Spec
from cell.residents import Resident
from cell.settings import CellSettings
from cell.supervisor import Supervisor

NOTHING: Any = None
SIZE = Size("f0", 0.25, 2**28, 2**30, 20)
Act = Callable[[Resident], Coroutine[Any, Any, Any]]


class Slow(Supervisor):
    """Its engines never come to run."""

    begun: list[str]
    other: asyncio.Event

    async def prepare(self, resident: Resident) -> None:
        self.begun.append(resident.record.tenant)
        if resident.record.tenant == "other":
            self.other.set()
        await asyncio.Event().wait()


def crowd_and_other(tmp_path: Path, act: Callable[[Slow], Act]) -> list[str]:
    """The tenants of those that were begun, of twenty of one tenant and then one of another."""

    async def run() -> list[str]:
        settings, layout = CellSettings(tmp_path, "cell_x", b""), Layout.make(tmp_path)
        host: Any = SimpleNamespace(groups_of_console=list)
        supervisor = Slow(settings, layout, host, *[NOTHING] * 4)
        supervisor.begun, supervisor.other = [], asyncio.Event()
        tasks = []
        for number in range(21):
            tenant = "crowd" if number < 20 else "other"
            spec = Spec("x", "1", SIZE, "x.local", None, None, 0.0, tenant=tenant)
            record = Record(f"inst_{number}", 1, spec, "running", None, 0.0)
            resident = Resident(record, layout.site(f"inst_{number}", 1), NOTHING)
            supervisor.residents[resident.instance_id] = resident
            tasks.append(asyncio.create_task(act(supervisor)(resident)))
        async with asyncio.timeout(60):
            await supervisor.other.wait()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        return supervisor.begun

    return asyncio.run(run())


def test_starts_of_one_tenant_leave_places_to_others(tmp_path: Path) -> None:
    assert sorted(crowd_and_other(tmp_path, lambda supervisor: supervisor.bring_up)) == [
        *["crowd"] * 4,
        "other",
    ]


def test_snapshots_of_one_tenant_leave_places_to_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def act(supervisor: Slow) -> Act:
        async def make(resident: Resident, *_: object) -> None:
            await supervisor.prepare(resident)

        monkeypatch.setattr(snapshots, "make", make)
        monkeypatch.setattr(supervisor, "login", lambda _: None)
        engines: Any = type("Found", (), {"drivers": {}, "refused": {}})
        lifecycle = Lifecycle(NOTHING, NOTHING, engines, NOTHING, NOTHING, supervisor)
        return lambda resident: lifecycle.snapshot(resident.instance_id, "x")

    assert sorted(crowd_and_other(tmp_path, act)) == [*["crowd"] * 2, "other"]
