"""An engine that keeps the memory it read its data with is started once more, where that helps."""

import asyncio
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

import pytest

from cell.engines.driver import Driver, EngineError, Room
from cell.instances import starting
from cell.instances.hosted import HostedInstance
from cell.instances.records import InstanceRecord
from cell.instances.starting import HeldMemoryError, limit, sparing
from cell.layout import Layout, Site
from cell.runtime.host import Host
from cell.runtime.process import Process
from cell.specification import Size, Spec

SIZE = Size("f0", 0.25, 2**28, 10**9, 20)


@dataclass
class Stopped:
    """Stands for an engine that leaves nothing to recover when it is stopped."""

    done: list[str] = field(default_factory=list)


@dataclass
class Logged(Stopped):
    """Stands for an engine that reads its log at each start."""

    answer: bool | EngineError = True
    room: Room | None = None

    async def rewrite_log(self, _site: Site, size: Size, room: Room) -> bool:
        assert size == SIZE
        self.room = room
        self.done.append("rewritten")
        if isinstance(self.answer, EngineError):
            raise self.answer
        return self.answer


class Coded(Logged):
    """The same, of one with code of its owner's."""

    code = "its function libraries"

    async def leave_out(self, _site: Site) -> Any:
        self.done.append("left out")
        return lambda: self.done.append("put back")


@dataclass
class Machine:
    """Stands for the host, its headroom and the process: what is given back at which look."""

    looks: list[bool]
    done: list[str]
    alive: bool = True
    group: str = "inst_x"

    @property
    def headroom(self) -> "Machine":
        return self

    def take_back(self, _group: str, size_bytes: int) -> bool:
        assert size_bytes == SIZE.memory_bytes
        return self.looks.pop(0)

    def limit_cpu(self, _process: Any, vcpu: float) -> None:
        assert vcpu == SIZE.vcpu
        self.done.append("runs")


@pytest.fixture(autouse=True)
def _at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(starting, "GIVEN_BACK_WITHIN_S", 0.0)
    monkeypatch.setattr(starting, "LOOK_AGAIN_MAX_S", 0.001)


def hosted(tmp_path: Path, driver: Any) -> HostedInstance:
    spec = Spec("x", "1", SIZE, "x.local", None, None, 0.0)
    site = Layout.make(tmp_path).site("inst_x", 1)
    site.log.parent.mkdir(parents=True)
    record = InstanceRecord("inst_x", 1, spec, "running", None, 0.0)
    return HostedInstance(record, site, cast("Driver", driver))


def started(instance: HostedInstance, looks: list[bool], *, alive: bool = True) -> None:
    done = cast("Any", instance.driver).done
    machine = Machine(looks, done, alive)

    async def start(one: HostedInstance, once_more: bool) -> None:
        done.append("start")
        host, process = cast("Host", machine), cast("Process", machine)
        await limit(host, one, process, once_more=once_more)

    asyncio.run(sparing(instance, start))
    assert not looks


@pytest.mark.parametrize(
    ("driver", "looks", "done"),
    [
        (Logged(), [True], ["start", "runs"]),
        (Stopped(), [False, False, True], ["start", "start", "runs"]),
        (Logged(), [False, False, True], ["start", "rewritten", "start", "runs"]),
        # An allocator that takes its time.
        (Logged(), [False, True], ["start", "rewritten", "runs"]),
    ],
)
def test_it_is_started_once_more_and_runs(
    tmp_path: Path, driver: Stopped, looks: list[bool], done: list[str]
) -> None:
    instance = hosted(tmp_path, driver)
    started(instance, looks)
    assert driver.done == done
    told = len(done) > len(["start", "runs"])
    assert (instance.reason == starting.STARTED_ONCE_MORE) is told
    assert instance.site.log.exists() is told


@pytest.mark.parametrize(
    ("driver", "looks", "done"),
    [
        (Stopped(), [False] * 3, ["start", "start"]),
        (Logged(), [False] * 3, ["start", "rewritten", "start"]),
        # Its data takes more than the size has, however short its log is.
        (Logged(answer=False), [False], ["start", "rewritten"]),
    ],
)
def test_what_needs_more_than_its_size_is_told_so(
    tmp_path: Path, driver: Stopped, looks: list[bool], done: list[str]
) -> None:
    with pytest.raises(EngineError, match="needs more memory than its size has; choose a larger"):
        started(hosted(tmp_path, driver), looks)
    assert driver.done == done


def test_why_a_log_cannot_be_rewritten_is_told(tmp_path: Path) -> None:
    driver = Logged(answer=EngineError("there is no room"))
    with pytest.raises(EngineError, match="there is no room"):
        started(hosted(tmp_path, driver), [False])
    assert driver.done == ["start", "rewritten"]


def test_how_much_is_used_is_counted_then(tmp_path: Path) -> None:
    driver = Logged()
    instance = hosted(tmp_path, driver)
    instance.site.data.outside.mkdir()
    (instance.site.data.outside / "log").write_bytes(bytes(10_000))
    started(instance, [False, True])
    assert driver.room is not None
    assert driver.room.used_bytes >= 10_000
    assert (driver.room.limit_bytes, driver.room.ceiling_bytes) == (10**9, SIZE.ceiling_bytes)


def test_one_that_ended_or_is_to_be_deleted_is_not_started_once_more(tmp_path: Path) -> None:
    ended = Logged()
    with pytest.raises(EngineError):
        started(hosted(tmp_path / "ended", ended), [False], alive=False)
    assert ended.done == ["start"]
    deleted = Stopped()
    instance = hosted(tmp_path / "deleted", deleted)
    instance.leaving = 1
    with pytest.raises(HeldMemoryError):
        started(instance, [False, False])
    assert deleted.done == ["start"]


def test_a_log_without_its_owners_code_is_not_rewritten(tmp_path: Path) -> None:
    """It could not be put back where the start fails nevertheless."""
    driver = Coded(answer=False)
    instance = hosted(tmp_path, driver)
    instance.start_failed("it exited")
    with pytest.raises(EngineError):
        started(instance, [False, False])
    assert driver.done == ["start", "rewritten", "left out", "start", "put back"]
