"""Operations of the tag Cells."""

from typing import Any

from cell.agent import Cell


async def get(cell: Cell) -> dict[str, Any]:
    return cell.description()
