"""Asks a source how far its history goes, again and again on one connection."""

import contextlib

from cell.migrations.conduit import Conduit
from cell.migrations.errors import MigrationError
from cell.migrations.redis.copying import explained, facts_of
from cell.migrations.redis.facts import RedisFacts
from cell.migrations.redis.source import ServerSource, logged_in


class LastingFacts:
    def __init__(self, conduit: Conduit, silence_s: float) -> None:
        self._conduit, self._silence_s = conduit, silence_s
        self._stack: contextlib.AsyncExitStack | None = None
        self._source: ServerSource | None = None

    async def facts(self) -> RedisFacts:
        """Raises MigrationError; the next time, it connects anew."""
        try:
            async with explained(self._silence_s):
                if self._source is None:
                    self._stack = contextlib.AsyncExitStack()
                    opened = logged_in(self._conduit, self._silence_s)
                    self._source = await self._stack.enter_async_context(opened)
                return await facts_of(self._source, "replication")
        except MigrationError:
            await self.end()
            raise

    async def end(self) -> None:
        stack, self._stack, self._source = self._stack, None, None
        if stack is not None:
            await stack.aclose()
