"""Steps of the control plane's operations: each is done once, and only for the newest lease."""

import asyncio
import time
from collections import Counter
from collections.abc import Awaitable, Callable

import orjson

from cell.database import Database
from specserver import Conflict, Reply

KEPT_S = 7 * 86_400.0
AGAIN_MIN_S = 1
AGAIN_MAX_S = 5
AGAIN_SHARE = 0.1


class Steps:
    """A step that is asked for again gets the answer of the first time, while it runs too.

    What was refused or failed is not kept: the next attempt may find it otherwise. An answer is
    given to the same request only (`asked` is its method and path): a control plane that was
    restored counts its operations anew, and must not hear of another instance what it asks of one.
    """

    def __init__(self, database: Database) -> None:
        self._database = database
        self._running: dict[str, asyncio.Task[Reply]] = {}
        self._begun: dict[str, float] = {}
        # What failed while nobody waited for it, until somebody asks; and how many wait for which.
        self._untold: dict[str, asyncio.Task[Reply]] = {}
        self._awaited: Counter[str] = Counter()

    async def once(
        self,
        asked: str,
        key: str,
        lease: int,
        act: Callable[[], Awaitable[Reply]],
        wait_s: float | None = None,
    ) -> Reply:
        """`wait_s`: how long one that begins now is waited for; one under way already is not."""
        self._check_lease(key, lease)
        key = f"{asked} {key}"
        answered = self._database.row("SELECT status, body FROM answers WHERE key = ?", key)
        if answered is not None:
            return Reply(answered[0], orjson.loads(answered[1]))
        task = self._running.get(key) or self._untold.pop(key, None)
        if task is None:
            # A task of its own: a caller that goes away must not leave an instance half made.
            task = asyncio.create_task(self._act(key, act))
            self._running[key], self._begun[key] = task, time.monotonic()
            task.add_done_callback(lambda done: self._done(key, done))
        elif wait_s is not None:
            wait_s = 0
        return await self._outcome(key, task, wait_s)

    async def _outcome(self, key: str, task: asyncio.Task[Reply], wait_s: float | None) -> Reply:
        self._awaited[key] += 1
        try:
            done, _ = await asyncio.wait({task}, timeout=wait_s)
        finally:
            self._awaited[key] -= 1
            if not self._awaited[key]:
                del self._awaited[key]
        if not done:
            again_s = self._again_s(key)
            detail = f"the operation is still running; ask again in {again_s} s"
            raise Conflict(detail, code="in_flight", headers={"Retry-After": str(again_s)})
        return task.result()

    def _again_s(self, key: str) -> int:
        """The longer it has taken by now, the later."""
        taken_s = time.monotonic() - self._begun[key]
        return min(max(AGAIN_MIN_S, int(taken_s * AGAIN_SHARE)), AGAIN_MAX_S)

    async def close(self) -> None:
        """Breaks off what still runs; it was not answered, so it will be asked for again."""
        for task in list(self._running.values()):
            task.cancel()
        await asyncio.gather(*self._running.values(), return_exceptions=True)

    def forget_old(self) -> None:
        self._untold.clear()
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
        del self._running[key], self._begun[key]
        # Looked at, so that it is not reported as forgotten.
        if not task.cancelled() and task.exception() is not None and key not in self._awaited:
            self._untold[key] = task
