"""Operations of the tag Migrations: a place for them, which the cell's side fills."""

from typing import Any, NoReturn

from cell.agent import Cell
from specserver import NotFound, Unavailable

Body = dict[str, Any]


async def get(cell: Cell, instance_id: str, migration_id: str) -> NoReturn:
    cell.lifecycle.find(instance_id)
    raise NotFound(f"the cell has no migration {migration_id}")


async def begin(cell: Cell, instance_id: str, migration_id: str, body: Body) -> NoReturn:  # noqa: ARG001
    _refuse()


async def cancel(cell: Cell, instance_id: str, migration_id: str) -> NoReturn:
    await get(cell, instance_id, migration_id)


async def cutover(cell: Cell, instance_id: str, migration_id: str, body: Body) -> NoReturn:  # noqa: ARG001
    await get(cell, instance_id, migration_id)


async def get_source(cell: Cell, token: str) -> NoReturn:
    cell.tokens.check(token, "migration_source")
    _refuse()


async def send_source(
    cell: Cell,
    token: str,
    body: Any,  # noqa: ARG001
    content_range: str | None = None,  # noqa: ARG001
) -> NoReturn:
    cell.tokens.check(token, "migration_source")
    _refuse()


def _refuse() -> NoReturn:
    raise Unavailable("this cell cannot run migrations yet")
