"""Operations of the tag Egress."""

import asyncio
from typing import Any

from cell.agent import Cell
from cell.instances import egress


async def collect(cell: Cell, body: dict[str, Any]) -> dict[str, Any]:
    found = await asyncio.to_thread(
        egress.collect, cell.layout.egress, body["instance_ids"], body["taken"]
    )
    return {"items": found}
