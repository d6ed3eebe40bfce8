"""Operations of the control plane: each step is done once, and only for the newest lease."""

import asyncio
import time
from collections.abc import Awaitable, Callable

import orjson

from cell.database import Database
from specserver import Conflict, Reply

KEPT_S = 7 * 86_400.0


class Operations:
    """A step that is asked for again gets the answer of the first time, while it runs too.

    What was refused or failed is not kept: the next attempt may find it otherwise. An answer is
    given to the same request only (`asked` is its method and path): a control plane that was
    restored counts its operations anew, and must not hear of another instance what it asks of one.
    """

    def __init__(self, database: Database) -> None:
        self._database = database
        self._running: dict[str, asyncio.Task[Reply]] = {}

    async def once(
        self, asked: str, key: str, lease: int, act: Callable[[], Awaitable[Reply]]
    ) -> Reply:
        self._check_lease(key, lease)
        key = f"{asked} {key}"
        answered = self._database.row("SELECT status, body FROM answers WHERE key = ?", key)
        if answered is not None:
            return Reply(answered[0], orjson.loads(answered[1]))
        task = self._running.get(key)
        if task is None:
            # A task of its own: a caller that goes away must not leave an instance half made.
            task = asyncio.create_task(self._act(key, act))
            self._running[key] = task
            task.add_done_callback(lambda done: self._done(key, done))
        return await asyncio.shield(task)

    async def close(self) -> None:
        """Breaks off what still runs; it was not answered, so it will be asked for again."""
        for task in list(self._running.values()):
            task.cancel()
        await asyncio.gather(*self._running.values(), return_exceptions=True)

    def forget_old(self) -> None:
        for table in ("answers", "leases"):
            self._database.write(f"DELETE FROM {table} WHERE at < ?", time.time() - KEPT_S)  # noqa: S608 - the tables above

    def _check_lease(self, key: str, lease: int) -> None:
        operation = key.rpartition(":")[0]
        seen = self._database.row("SELECT lease FROM leases WHERE operation = ?", operation)
        if seen is not None and lease < seen[0]:
            detail = (
                f"lease {lease} of the operation is older than {seen[0]}, which was used before"
            )
            raise Conflict(detail, code="stale_lease")
        if seen is None or lease > seen[0]:
            self._database.write(
                "INSERT OR REPLACE INTO leases VALUES (?, ?, ?)", operation, lease, time.time()
            )

    async def _act(self, key: str, act: Callable[[], Awaitable[Reply]]) -> Reply:
        reply = await act()
        row = (key, reply.status, reply.encode(), time.time())
        self._database.write("INSERT OR REPLACE INTO answers VALUES (?, ?, ?, ?)", *row)
        return reply

    def _done(self, key: str, task: asyncio.Task[Reply]) -> None:
        del self._running[key]
        if not task.cancelled():
            task.exception()  # looked at, so that it is not reported as forgotten
