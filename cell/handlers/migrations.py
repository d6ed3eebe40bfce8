"""Operations of the tag Migrations."""

from typing import Any

from cell.agent import Cell

Body = dict[str, Any]


async def get(cell: Cell, instance_id: str, migration_id: str) -> Body:
    instance = cell.lifecycle.find(instance_id)
    return cell.migrations.find(instance, migration_id).observation()


async def begin(cell: Cell, instance_id: str, migration_id: str, body: Body) -> Body:
    instance = cell.lifecycle.find(instance_id)
    return cell.migrations.begin(instance, migration_id, body).observation()


async def cancel(cell: Cell, instance_id: str, migration_id: str) -> Body:
    instance = cell.lifecycle.find(instance_id)
    return (await cell.migrations.cancel(instance, migration_id)).observation()


async def cutover(cell: Cell, instance_id: str, migration_id: str, body: Body) -> Body:
    instance = cell.lifecycle.find(instance_id)
    keep_s = body["keep_way_back_s"]
    return cell.migrations.cut_over(instance, migration_id, keep_s).observation()


async def get_source(cell: Cell, token: str) -> Body:
    return dict(cell.sources.received(token))


async def send_source(
    cell: Cell, token: str, body: bytes | Body, content_range: str | None = None
) -> Body:
    return dict(await cell.sources.take(token, body, content_range))
