"""Answers on their way to browsers: how many large ones the cell holds at a time, and for whom."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import structlog

from specserver.turns import Together, Turns

log = structlog.get_logger("cell.console")

# What the server takes off our hands anyway.
SMALL_BYTES = 64 * 1024
EVERY = 24
OF_ONE = 6
RESERVED = 8
TAKEN_WITHIN_S = 60.0

Send = Callable[[Any], Awaitable[None]]


class Answers:
    """A browser that takes its answer slowly keeps it in the memory of the process of the engines.

    Dealt out as the statements are, of which each has one answer.
    """

    def __init__(self, taken_within_s: float = TAKEN_WITHIN_S) -> None:
        self._turns = Turns(EVERY, OF_ONE, reserved=RESERVED)
        self._taken_within_s = taken_within_s

    def reserve(self, whose: Together) -> bool:
        return self._turns.try_enter(whose)

    def release(self, whose: Together) -> None:
        self._turns.leave(whose)

    async def send(self, send: Send, content: bytes) -> None:
        """In parts, as the server lets us wait between them; what is late is given up."""
        try:
            async with asyncio.timeout(self._taken_within_s):
                for start in range(0, len(content), SMALL_BYTES):
                    part = content[start : start + SMALL_BYTES]
                    await send({"type": "http.response.body", "body": part, "more_body": True})
                await send({"type": "http.response.body", "body": b""})
        except TimeoutError:
            # The server ends the connection of an answer that is not whole.
            log.info("cell.console_answer_not_taken")
