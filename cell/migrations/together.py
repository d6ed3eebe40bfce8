"""Several things at once, of which the first that fails ends the others."""

import asyncio
from collections.abc import Coroutine
from typing import Any


async def together(*work: Coroutine[Any, Any, None]) -> None:
    tasks = [asyncio.create_task(each) for each in work]
    try:
        for each in asyncio.as_completed(tasks):
            await each
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
