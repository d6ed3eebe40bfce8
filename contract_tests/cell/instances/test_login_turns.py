"""A credential ends when it is to end, also while its instance is copied or waits for a place."""

import asyncio
import os
from collections.abc import Callable, Coroutine
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Any

import pytest

from cell.access.credentials import Credentials
from cell.database import Database
from cell.instances import bounds, login_turns, snapshots
from cell.instances.hosted import HostedInstance
from cell.instances.overlaps import Overlaps
from cell.sealing import Sealer
from contract_tests.cell.instances.test_turns import Slow, instance_of, lifecycle_of, supervisor_of

Work = Callable[[Slow, HostedInstance], Coroutine[Any, Any, Any]]


@pytest.fixture
def credentials(tmp_path: Path) -> Credentials:
    return Credentials(Database(tmp_path / "cell.db"), Sealer(os.urandom(32), "credentials"))


def running(supervisor: Slow) -> HostedInstance:
    instance = instance_of(supervisor, 0, "org")
    instance.became_usable(0)
    return instance


async def copy(supervisor: Slow, instance: HostedInstance) -> None:
    await lifecycle_of(supervisor).snapshot(instance.instance_id, "x")


async def wait_for_a_place(supervisor: Slow, instance: HostedInstance) -> None:
    """As an upgrade does while the engine runs on."""

    class Never(AbstractAsyncContextManager[None]):
        async def __aenter__(self) -> None:
            await supervisor.prepare(instance)

        async def __aexit__(self, *_: object) -> None: ...

    async with instance.lock, bounds.in_turn(instance, Never()):
        pass


@pytest.mark.parametrize("work", [copy, wait_for_a_place])
def test_an_overlap_ends_beside_what_leaves_the_engine_running(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, credentials: Credentials, work: Work
) -> None:
    told: list[str] = []

    async def hand_out(instance: HostedInstance) -> None:
        told.append(instance.instance_id)

    async def run() -> None:
        supervisor = supervisor_of(tmp_path)
        monkeypatch.setattr(supervisor, "login", lambda _: None)
        monkeypatch.setattr(snapshots, "make", lambda each, *_: supervisor.prepare(each))
        instance = running(supervisor)
        busy = asyncio.create_task(work(supervisor, instance))
        async with asyncio.timeout(20):
            while not supervisor.begun:  # noqa: ASYNC110 - what is looked at tells nobody
                await asyncio.sleep(0.01)
            await Overlaps(credentials, hand_out).end(instance.instance_id, instance)
        assert told == [instance.instance_id]
        assert instance.lock.locked()
        busy.cancel()
        await asyncio.gather(busy, return_exceptions=True)
        assert not instance.lock.locked()

    asyncio.run(run())


def test_whoever_has_the_lock_alone_is_waited_for(tmp_path: Path) -> None:
    async def run() -> None:
        instance = running(supervisor_of(tmp_path))
        async with instance.lock:
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(0.05), login_turns.locked(instance):
                    pass
        assert not instance.lock.locked(), "who gave up has not got it later"
        async with login_turns.locked(instance):
            assert instance.lock.locked()
        assert not instance.lock.locked()

    asyncio.run(run())


def test_changes_beside_a_copy_are_made_one_by_one_and_end_before_it_does(tmp_path: Path) -> None:
    async def run() -> list[str]:
        seen, may_end = [], asyncio.Event()
        instance = running(supervisor_of(tmp_path))

        async def copied() -> None:
            async with instance.lock, login_turns.let_change(instance):
                await may_end.wait()
                seen.append("copied")
            seen.append("ended")

        async def changed() -> None:
            async with login_turns.locked(instance):
                seen.append("begun")
                may_end.set()
                await asyncio.sleep(0.02)
                seen.append("changed")

        async with asyncio.timeout(20):
            await asyncio.gather(copied(), changed(), changed())
        return seen

    assert asyncio.run(run()) == ["begun", "copied", "changed", "ended", "begun", "changed"]


def test_what_expires_while_the_engine_is_told_is_told_next(
    tmp_path: Path, credentials: Credentials
) -> None:
    instance_id = "inst_0"
    credentials.make(instance_id, 0)
    credentials.make(instance_id, 0)

    async def hand_out(_: HostedInstance) -> None:
        """Told of the first one's end; meanwhile the second one's comes."""
        credentials.make(instance_id, 0)
        credentials.make(instance_id, 0)

    async def run() -> None:
        instance = running(supervisor_of(tmp_path))
        overlaps = Overlaps(credentials, hand_out)
        await asyncio.sleep(0.001)
        assert overlaps.due() == {instance_id}
        await overlaps.end(instance_id, instance)
        await asyncio.sleep(0.001)
        assert overlaps.due() == {instance_id}, "the second one is not forgotten untold"

    asyncio.run(run())
