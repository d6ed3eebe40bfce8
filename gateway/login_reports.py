"""Tells the cell of its logins that an engine does not accept, or has another password for.

Anybody can fail to log in, so an instance is told of once a second at most, and few at a time.
"""

import asyncio

import httpx
import structlog

from gateway.wake import Waker, cell_client

log = structlog.get_logger("gateway.login_reports")

EVERY_S = 1.0
TIMEOUT_S = 30.0
AT_ONCE_MAX = 8


class LoginReports:
    def __init__(self, waker: Waker) -> None:
        self._waker = waker
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._again: set[str] = set()
        self._turns = asyncio.Semaphore(AT_ONCE_MAX)

    def note(self, instance_id: str, cell_socket: str) -> None:
        if instance_id in self._tasks:
            self._again.add(instance_id)
            return
        task = asyncio.create_task(self._run(instance_id, cell_socket))
        self._tasks[instance_id] = task

    async def stop(self) -> None:
        tasks = list(self._tasks.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _run(self, instance_id: str, cell_socket: str) -> None:
        """Until nothing was noted since it was last told."""
        try:
            while True:
                self._again.discard(instance_id)
                async with self._turns:
                    await self._tell(instance_id, cell_socket)
                await asyncio.sleep(EVERY_S)
                if instance_id not in self._again:
                    return
        finally:
            del self._tasks[instance_id]

    async def _tell(self, instance_id: str, cell_socket: str) -> None:
        try:
            headers = {"authorization": f"Bearer {self._waker.token()}"}
            async with cell_client(cell_socket, TIMEOUT_S) as client:
                answer = await client.post(f"/v1/doubted-logins/{instance_id}", headers=headers)
        except (httpx.HTTPError, OSError) as error:
            log.warning("gateway.login_report_failed", instance_id=instance_id, reason=repr(error))
            return
        log.info("gateway.login_reported", instance_id=instance_id, status=answer.status_code)
