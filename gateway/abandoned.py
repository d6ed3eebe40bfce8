"""Sessions of engines that work on for a client that has gone, until the cell has ended them.

MariaDB and MySQL notice it only when the statement is done, which may be never.
"""

import asyncio
import collections
import time

import httpx
import structlog

from gateway.wake import Waker, cell_client

log = structlog.get_logger("gateway.abandoned")

# Most end by themselves, once the engine reads that the client has gone.
GRACE_S = 2.0
NOTED_MAX = 10_000
NOTED_OF_ONE_MAX = 1_000
TOLD_MAX = 100
TIMEOUT_S = 30.0

Session = tuple[str, int]


class Abandoned:
    def __init__(self, waker: Waker) -> None:
        self._waker = waker
        self._noted: dict[Session, float] = {}
        self._noted_of: collections.Counter[str] = collections.Counter()
        self._telling: dict[str, asyncio.Task[None]] = {}

    def note(self, instance_id: str, number: int) -> None:
        """`number` is the engine's own for a session that is not known to have ended."""
        session = instance_id, number
        full = len(self._noted) >= NOTED_MAX or self._noted_of[instance_id] >= NOTED_OF_ONE_MAX
        if session not in self._noted and not full:
            self._noted[session] = time.time()
            self._noted_of[instance_id] += 1

    def ended(self, instance_id: str, number: int) -> None:
        if self._noted.pop((instance_id, number), None) is not None:
            self._noted_of[instance_id] -= 1
            if not self._noted_of[instance_id]:
                del self._noted_of[instance_id]

    def tell(self, cell_socket: str) -> None:
        """To be called now and then. Each is told once: a cell that is away hears of it no more."""
        due = collections.defaultdict[str, dict[int, float]](dict)
        for (instance_id, number), at in self._noted.items():
            numbers = due[instance_id]
            busy = instance_id in self._telling or len(numbers) == TOLD_MAX
            if not busy and time.time() - at > GRACE_S:
                numbers[number] = at
        for instance_id, numbers in due.items():
            if numbers:
                for number in numbers:
                    self.ended(instance_id, number)
                task = asyncio.create_task(self._tell(cell_socket, instance_id, numbers))
                self._telling[instance_id] = task
                task.add_done_callback(lambda _, done=instance_id: self._telling.pop(done))  # type: ignore[misc]

    async def stop(self) -> None:
        for task in self._telling.values():
            task.cancel()
        await asyncio.gather(*self._telling.values(), return_exceptions=True)

    async def _tell(self, cell_socket: str, instance_id: str, numbers: dict[int, float]) -> None:
        told = {"sessions": list(numbers), "since": min(numbers.values())}
        try:
            headers = {"authorization": f"Bearer {self._waker.token()}"}
            async with cell_client(cell_socket, TIMEOUT_S) as client:
                path = f"/v1/abandoned/{instance_id}"
                answer = await client.post(path, json=told, headers=headers)
            status = answer.status_code
        except (httpx.HTTPError, OSError) as error:
            log.warning("gateway.abandoned_untold", instance_id=instance_id, reason=repr(error))
            return
        log.info("gateway.abandoned", instance_id=instance_id, count=len(numbers), status=status)
