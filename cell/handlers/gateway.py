"""Operations of the tag Gateway."""

from typing import Any

from cell.agent import Cell
from cell.instances import login_checks


async def wake(cell: Cell, instance_id: str) -> dict[str, Any]:
    instance = await cell.lifecycle.wake(instance_id)
    return {"instance_id": instance_id, "status": instance.status}


async def check_logins(cell: Cell, instance_id: str) -> dict[str, Any]:
    await login_checks.check(cell.lifecycle.find(instance_id))
    return {"instance_id": instance_id}


async def abandon(cell: Cell, instance_id: str, body: dict[str, Any]) -> dict[str, Any]:
    ended = await cell.lifecycle.abandon(instance_id, body["sessions"], body["since"])
    return {"instance_id": instance_id, "ended": ended}
