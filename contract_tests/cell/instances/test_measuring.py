"""An instance whose files take long to count keeps no other from being looked at."""

import asyncio
import threading
import time
from types import SimpleNamespace
from typing import Any, cast

import pytest

from cell.engines.driver import Metrics
from cell.instances import measuring
from cell.instances.hosted import HostedInstance
from cell.instances.measuring import Measuring


class Counted:
    """As much of a driver as is asked; each count takes `takes_s`, and waits for `go_on`."""

    def __init__(self) -> None:
        self.go_on, self.counts, self.takes_s = threading.Event(), 0, 0.0
        self.go_on.set()

    def metrics(self, _site: Any, _process: Any) -> Metrics:
        assert self.go_on.wait(30)
        time.sleep(self.takes_s)
        self.counts += 1
        return Metrics(self.counts, 0, 0.0)


def instance(name: str, driver: Counted) -> HostedInstance:
    record = SimpleNamespace(desired="running")
    known = {"instance_id": name, "driver": driver, "record": record, "site": None, "process": None}
    return cast("HostedInstance", SimpleNamespace(**known))


async def look(slow: Counted, quick: Counted) -> None:
    both = [instance("inst_slow", slow), instance("inst_quick", quick)]
    measured = Measuring(asyncio.create_task, lambda *_: None)
    slow.takes_s = measuring.SLOW_S * 1.5
    await measured.look(both)
    assert (slow.counts, quick.counts) == (1, 1)
    slow.go_on.clear()
    for _ in range(3):
        await measured.look(both)
    assert (slow.counts, quick.counts) == (1, 4)
    slow.go_on.set()
    # Its next look is begun once the former has ended.
    while slow.counts < 3:
        await measured.look(both)
        await asyncio.sleep(0.01)


async def begin(slow: Counted, quick: Counted) -> None:
    slow.go_on.clear()
    both = [instance("inst_slow", slow), instance("inst_quick", quick)]
    measured = Measuring(asyncio.create_task, lambda *_: None)
    await measured.look(both)
    assert (slow.counts, quick.counts) == (0, 1)
    slow.go_on.set()


async def turn(former: Counted, quick: Counted) -> None:
    both = [instance("inst_former", former), instance("inst_quick", quick)]
    measured = Measuring(asyncio.create_task, lambda *_: None)
    await measured.look(both)
    former.go_on.clear()
    await measured.look(both)
    for _ in range(3):
        await measured.look(both)
    assert (former.counts, quick.counts) == (1, 4)
    former.go_on.set()


def test_one_that_was_quick_keeps_the_others_only_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """As an engine that was taken over opens ten million files."""
    monkeypatch.setattr(measuring, "FIRST_S", 0.2)
    asyncio.run(turn(Counted(), Counted()))


async def turn_alone(former: Counted) -> None:
    begun = 0

    class Noted(Counted):
        def metrics(self, site: Any, process: Any) -> Metrics:
            nonlocal begun
            begun += 1
            return former.metrics(site, process)

    alone = [instance("inst_former", Noted())]
    measured = Measuring(asyncio.create_task, lambda *_: None)
    await measured.look(alone)
    former.go_on.clear()
    begun = 0
    for _ in range(4):
        await measured.look(alone)
    assert begun == 1
    former.go_on.set()


def test_one_that_is_alone_is_not_begun_again_and_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each would take one of the cell's few threads."""
    monkeypatch.setattr(measuring, "FIRST_S", 0.2)
    asyncio.run(turn_alone(Counted()))


def test_a_start_does_not_wait_for_a_slow_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(measuring, "FIRST_S", 0.2)
    asyncio.run(begin(Counted(), Counted()))


def test_a_slow_one_is_counted_beside_the_others() -> None:
    asyncio.run(look(Counted(), Counted()))


def test_one_that_cannot_be_counted_keeps_no_other_from_it() -> None:
    class Uncountable(Counted):
        def metrics(self, _site: Any, _process: Any) -> Metrics:
            raise UnicodeDecodeError("ascii", b"\xff", 0, 1, "its name")

    there = Counted()
    measured = Measuring(asyncio.create_task, lambda *_: None)
    asyncio.run(measured.look([instance("inst_a", Uncountable()), instance("inst_b", there)]))
    assert there.counts == 1
