"""Starting a process that is given up before it runs, and leaves nothing."""

import asyncio
import contextlib
from asyncio.subprocess import Process
from typing import Any

from cell.runtime.process import kill_tree

END_WITHIN_S = 10.0


async def started(*words: str, **given: Any) -> Process:
    """As `create_subprocess_exec`, which on a cancel would wait for what is inside a sandbox."""
    starting = asyncio.ensure_future(asyncio.create_subprocess_exec(*words, **given))
    try:
        return await asyncio.shield(starting)
    except asyncio.CancelledError:
        # Whoever cancels a second time does not break off this.
        await asyncio.shield(_end(starting))
        raise


async def end(process: Process) -> None:
    """At once, with all its descendants."""
    if process.returncode is not None:
        return
    await asyncio.to_thread(kill_tree, process.pid)
    with contextlib.suppress(TimeoutError):
        # `wait_for` forgets that it was cancelled if both come at once.
        async with asyncio.timeout(END_WITHIN_S):
            await process.wait()


async def _end(starting: "asyncio.Future[Process]") -> None:
    await end(await starting)
