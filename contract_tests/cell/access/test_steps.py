"""What takes long is answered for later, whatever became of it meanwhile."""

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from cell.access.steps import Steps
from cell.database import Database
from specserver import Conflict, Reply, Unavailable


class Asker:
    """Of one step, which is done once `finish` is set, and fails with `failure`."""

    def __init__(self, path: Path) -> None:
        self.steps = Steps(Database(path))
        self.finish = asyncio.Event()
        self.failure: Exception | None = None
        self.begun = 0

    async def ask(self, wait_s: float | None = 0.01) -> Reply:
        return await self.steps.once("PUT /x", "1:put", 1, self._act, wait_s)

    async def _act(self) -> Reply:
        self.begun += 1
        await self.finish.wait()
        if self.failure is not None:
            raise self.failure
        return Reply(200, {"done": True})


def run(tmp_path: Path, act: Callable[[Asker], Awaitable[None]]) -> None:
    async def with_asker() -> None:
        await act(Asker(tmp_path / "cell.db"))

    asyncio.run(with_asker())


async def in_flight(asker: Asker) -> None:
    with pytest.raises(Conflict) as refused:
        await asker.ask()
    assert (refused.value.code, refused.value.headers["Retry-After"]) == ("in_flight", "1")


def test_an_operation_that_goes_on_is_answered_for_later(tmp_path: Path) -> None:
    async def act(asker: Asker) -> None:
        await in_flight(asker)
        await in_flight(asker)
        asker.finish.set()
        waiting = await asker.ask(wait_s=None)
        again = await asker.ask()
        assert (waiting.body, again.body, asker.begun) == ({"done": True}, {"done": True}, 1)

    run(tmp_path, act)


def test_who_asks_next_hears_of_what_failed_while_nobody_waited(tmp_path: Path) -> None:
    async def act(asker: Asker) -> None:
        asker.failure = Unavailable("the engine did not start")
        await in_flight(asker)
        asker.finish.set()
        await asyncio.sleep(0.01)
        with pytest.raises(Unavailable, match="did not start"):
            await asker.ask()
        assert asker.begun == 1
        with pytest.raises(Unavailable):
            await asker.ask()
        assert asker.begun == 2, "told once, it is tried again"

    run(tmp_path, act)
