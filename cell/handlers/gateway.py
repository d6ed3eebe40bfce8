"""Operations of the tag Gateway."""

from typing import Any

from cell.agent import Cell


async def wake(cell: Cell, instance_id: str) -> dict[str, Any]:
    resident = await cell.lifecycle.wake(instance_id)
    return {"instance_id": instance_id, "status": resident.status}


async def abandon(cell: Cell, instance_id: str, body: dict[str, Any]) -> dict[str, Any]:
    ended = await cell.lifecycle.abandon(instance_id, body["sessions"], body["since"])
    return {"instance_id": instance_id, "ended": ended}
