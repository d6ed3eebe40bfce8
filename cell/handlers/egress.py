"""Operations of the tag Egress."""

import asyncio
from typing import Any

from cell.agent import Cell
from cell.instances import egress, sent_bytes
from cell.timestamps import unix
from gateway.sent_bytes import HOUR_S


async def collect(cell: Cell, body: dict[str, Any]) -> dict[str, Any]:
    found = await asyncio.to_thread(
        egress.collect, cell.layout.egress, body["instance_ids"], body["taken"]
    )
    return {"items": found}


async def sent(cell: Cell, hour: str) -> dict[str, Any]:
    number = int(unix(hour) or 0) // HOUR_S
    found = await asyncio.to_thread(sent_bytes.of_hour, cell.layout.sent, number)
    items = [{"instance_id": one, "bytes_out": sent} for one, sent in sorted(found.items())]
    return {"items": items}
