"""A cancellation, and the next one, break off no cleaning up."""

import asyncio

import pytest

from cell.runtime.to_its_end import to_its_end


def test_it_goes_on_however_often_it_is_cancelled() -> None:
    steps: list[int] = []

    async def clean() -> None:
        for number in range(4):
            await asyncio.sleep(0.01)
            steps.append(number)

    async def run() -> None:
        waiting = asyncio.create_task(to_its_end(clean()))
        for _ in range(3):
            await asyncio.sleep(0.01)
            waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting

    asyncio.run(run())
    assert steps == [0, 1, 2, 3]


@pytest.mark.parametrize("is_cancelled", [False, True])
def test_what_it_raises_is_told(is_cancelled: bool) -> None:
    async def clean() -> None:
        await asyncio.sleep(0.01)
        raise OSError("full")

    async def run() -> None:
        waiting = asyncio.create_task(to_its_end(clean()))
        await asyncio.sleep(0)
        if is_cancelled:
            waiting.cancel()
        with pytest.raises(OSError, match="full"):
            await waiting

    asyncio.run(run())
