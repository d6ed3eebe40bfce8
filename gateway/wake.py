"""Waking a paused instance: one request to the cell, joined by every connection that waits."""

import asyncio
from pathlib import Path

import httpx
import structlog

from gateway.bounded_answers import async_client
from gateway.refusal import Refusal

log = structlog.get_logger("gateway.wake")

RETRY_S = 0.25
RETRY_AFTER_S = 5
# The cell may take longer than any one connection is held: a later one then finds it awake.
WAKE_MAX_S = 120.0


class Waker:
    def __init__(self, cell_home: Path) -> None:
        self._home = cell_home
        self._wakes: dict[str, asyncio.Task[int]] = {}

    async def wake(self, instance_id: str, cell_socket: str, hold_s: float) -> None:
        """Returns when the cell says the instance takes logins; raises Refusal where not."""
        task = self._wakes.get(instance_id)
        if task is None:
            task = asyncio.create_task(self._ask(instance_id, cell_socket))
            self._wakes[instance_id] = task
            task.add_done_callback(lambda done: self._done(instance_id, done))
        try:
            status = await asyncio.wait_for(asyncio.shield(task), hold_s)
        except TimeoutError:
            text = f"the instance is resuming and has taken more than {hold_s:.0f} s; try again"
            raise Refusal("not_woken", text, RETRY_AFTER_S) from None
        except (httpx.HTTPError, OSError) as error:
            raise Refusal(
                "not_woken", "the instance cannot be resumed now; try again", RETRY_AFTER_S
            ) from error
        if status == httpx.codes.CONFLICT:
            raise Refusal("paused", "the instance is paused; resume it to connect")
        if status >= httpx.codes.BAD_REQUEST:
            raise Refusal("not_woken", "the instance could not be resumed", RETRY_AFTER_S)

    async def stop(self) -> None:
        for task in self._wakes.values():
            task.cancel()
        await asyncio.gather(*self._wakes.values(), return_exceptions=True)

    def _done(self, instance_id: str, task: asyncio.Task[int]) -> None:
        del self._wakes[instance_id]
        if not task.cancelled():
            task.exception()  # looked at, so that it is not reported as forgotten

    def token(self) -> str:
        """By which the cell knows its gateway: a new one at each start of the cell."""
        return (self._home / "run" / "gateway.token").read_text().strip()

    async def _ask(self, instance_id: str, cell_socket: str) -> int:
        async with cell_client(cell_socket, WAKE_MAX_S) as client:
            deadline = asyncio.get_running_loop().time() + WAKE_MAX_S
            while True:
                try:
                    token = self.token()
                    answer = await client.post(
                        f"/v1/wake/{instance_id}", headers={"authorization": f"Bearer {token}"}
                    )
                except (httpx.TransportError, OSError):
                    # The cell is restarting: its instances can be woken a moment later.
                    if asyncio.get_running_loop().time() + RETRY_S > deadline:
                        raise
                    await asyncio.sleep(RETRY_S)
                else:
                    if answer.status_code == httpx.codes.UNAUTHORIZED and token != self.token():
                        continue  # the cell has just restarted with another
                    log.info("gateway.wake", instance_id=instance_id, status=answer.status_code)
                    return answer.status_code


def cell_client(cell_socket: str, timeout_s: float) -> httpx.AsyncClient:
    # No TLS on a unix socket, so no authorities to load: that takes 25 ms of the loop.
    transport = httpx.AsyncHTTPTransport(uds=cell_socket, verify=False)
    return async_client(transport, base_url="http://cell", timeout=timeout_s)
