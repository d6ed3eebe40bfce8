"""Calls that block, on threads that nobody waits for when the cell ends."""

import asyncio
import contextlib
import threading
from collections.abc import Callable
from typing import Any, TypeVar

T = TypeVar("T")


async def in_daemon_thread(work: Callable[..., T], *given: Any) -> T:
    """As `asyncio.to_thread`; but a server that does not answer holds up no end of the process."""
    loop = asyncio.get_running_loop()
    outcome: asyncio.Future[T] = loop.create_future()

    def settle(result: T | None, error: BaseException | None) -> None:
        if outcome.cancelled():
            return
        if error is not None:
            outcome.set_exception(error)
        else:
            outcome.set_result(result)  # type: ignore[arg-type]

    def run() -> None:
        result, failed = None, None
        try:
            result = work(*given)
        except Exception as error:  # noqa: BLE001 - it is whoever asked who hears of it
            failed = error
        with contextlib.suppress(RuntimeError):  # the loop has ended meanwhile
            loop.call_soon_threadsafe(settle, result, failed)

    threading.Thread(target=run, name="daemon", daemon=True).start()
    return await outcome
