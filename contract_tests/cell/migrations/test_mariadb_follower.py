"""What the follower of a MariaDB has begun in the instance is at its end when it has ended."""

import asyncio
import threading
import time
from types import SimpleNamespace
from typing import Any, cast

from cell.migrations.mysql.follower import BinlogFollower


class BusyTarget:
    """A session that goes on for a moment after it is told to end."""

    def __init__(self) -> None:
        self.is_told = threading.Event()
        self.is_busy = False
        self.was_closed_busy: bool | None = None

    def open(self) -> None:
        self.is_busy = True
        self.is_told.wait(30)
        time.sleep(0.3)
        self.is_busy = False
        raise OSError("the session was ended")

    def end(self) -> None:
        self.is_told.set()

    def close(self) -> None:
        self.was_closed_busy = self.was_closed_busy or self.is_busy


async def _ended_twice(target: BusyTarget) -> None:
    conduit = SimpleNamespace(source=SimpleNamespace(database="shop"))
    given: tuple[Any, ...] = (None, conduit, target, 1.0)
    follower = BinlogFollower(*cast("Any", given))
    while not target.is_busy:  # noqa: ASYNC110 - set by a thread
        await asyncio.sleep(0.01)
    once = asyncio.create_task(follower.end())
    await asyncio.sleep(0.1)
    await follower.end()
    await once


def test_a_session_is_waited_for_however_often_it_is_cancelled() -> None:
    target = BusyTarget()
    asyncio.run(_ended_twice(target))
    assert target.was_closed_busy is False
