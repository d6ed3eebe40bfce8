"""Timers that those who wait share: nobody is told too early, nor after they have left."""

import asyncio
import time

from control.boundary.shared_timers import SharedTimers, shared_timers


class Waiting:
    """Notes when it was told that its time is over."""

    def __init__(self, after_s: float) -> None:
        self.until = time.monotonic() + after_s
        self.told_at: float | None = None
        self.told = asyncio.Event()

    def end_wait(self) -> None:
        assert self.told_at is None
        self.told_at = time.monotonic()
        self.told.set()


def test_each_is_told_once_and_none_too_early() -> None:
    async def run() -> None:
        timers = SharedTimers(asyncio.get_running_loop())
        found = []
        for number in range(60):
            found.append(Waiting(number / 400))
            timers.add(found[-1], number / 400)
            # The loop's clock stands still while a turn lasts.
            time.sleep(0.001)  # noqa: ASYNC251 - for that
        await asyncio.gather(*(one.told.wait() for one in found))
        for one in found:
            assert one.told_at is not None
            assert one.told_at >= one.until
        assert timers._waiting == {}  # nothing of them is kept

    asyncio.run(run())


def test_who_has_left_is_not_told() -> None:
    async def run() -> None:
        timers = shared_timers(asyncio.get_running_loop())
        assert shared_timers(asyncio.get_running_loop()) is timers
        left, stays = Waiting(0.05), Waiting(0.05)
        timers.add(left, 0.05).discard(left)
        timers.add(stays, 0.05)
        await stays.told.wait()
        await asyncio.sleep(0.1)
        assert left.told_at is None

    asyncio.run(run())
    asyncio.run(run())
