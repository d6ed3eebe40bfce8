"""What is begun to clean up goes on to its end, however often whoever waits for it is cancelled."""

import asyncio
from collections.abc import Coroutine
from typing import Any


async def to_its_end(work: Coroutine[Any, Any, None]) -> None:
    """Raises what it raises, or CancelledError after it where that came meanwhile."""
    task = asyncio.ensure_future(work)
    cancelled: asyncio.CancelledError | None = None
    while not task.done():
        try:
            await asyncio.wait({task})
        except asyncio.CancelledError as error:
            cancelled = error
    if cancelled is not None:
        # Of an error in it somebody is told all the same.
        if (failed := task.exception()) is not None:
            raise failed from cancelled
        raise cancelled
    task.result()
