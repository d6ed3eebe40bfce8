"""Calls that block for long, each on a thread of its own: the shared ones stay free for others."""

import asyncio
import contextlib
import contextvars
import threading
from collections.abc import Callable
from typing import Any, TypeVar

from cell.runtime import priority

T = TypeVar("T")


async def in_own_thread(work: Callable[..., T], *given: Any) -> T:
    """As `asyncio.to_thread`, for what may take minutes; its caller bounds how many there are."""
    return await _in_thread(work, given, daemon=False)


async def in_quiet_thread(work: Callable[..., T], *given: Any) -> T:
    """The same with a low priority, as have the threads that it starts."""

    def quietly() -> T:
        priority.lower_own()
        return work(*given)

    return await _in_thread(quietly, (), daemon=False)


async def in_background_thread(work: Callable[[], T]) -> T:
    """Both: with a low priority, and nothing that the end of the process waits for."""

    def quietly() -> T:
        priority.lower_own()
        return work()

    return await _in_thread(quietly, (), daemon=True)


async def in_daemon_thread(work: Callable[..., T], *given: Any) -> T:
    """The same; but a server that does not answer holds up no end of the process."""
    return await _in_thread(work, given, daemon=True)


async def _in_thread(work: Callable[..., T], given: tuple[Any, ...], *, daemon: bool) -> T:
    loop = asyncio.get_running_loop()
    outcome: asyncio.Future[T] = loop.create_future()
    context = contextvars.copy_context()

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
            result = context.run(work, *given)
        except BaseException as error:  # noqa: BLE001 - it is whoever asked who hears of it
            failed = error
        with contextlib.suppress(RuntimeError):  # the loop has ended meanwhile
            loop.call_soon_threadsafe(settle, result, failed)

    name = "daemon" if daemon else "own"
    threading.Thread(target=run, name=name, daemon=daemon).start()
    return await outcome
