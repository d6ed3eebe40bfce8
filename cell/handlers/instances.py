"""Operations of the tag Instances."""

import asyncio
from typing import Any

from cell.agent import Cell
from cell.instances import measuring
from cell.specification import Size, Spec
from specserver import Reply

Body = dict[str, Any]


async def list_(cell: Cell) -> Body:
    instances = sorted(cell.supervisor.instances.items())
    open_ = cell.lasting_access.held()
    cell.lifecycle.told_erased(instance for _, instance in instances)
    return {
        "items": [
            {**cell.lifecycle.observation(instance), "access": open_.get(instance_id, [])}
            for instance_id, instance in instances
        ]
    }


async def get(cell: Cell, instance_id: str) -> Body:
    return cell.lifecycle.observation(cell.lifecycle.find(instance_id))


async def put(cell: Cell, instance_id: str, body: Body) -> Body:
    instance = await cell.lifecycle.put(instance_id, Spec.parse(body))
    return cell.lifecycle.observation(instance)


async def pause(cell: Cell, instance_id: str) -> Body:
    return cell.lifecycle.observation(await cell.lifecycle.pause(instance_id))


async def resume(cell: Cell, instance_id: str) -> Body:
    return cell.lifecycle.observation(await cell.lifecycle.resume(instance_id))


async def resize(cell: Cell, instance_id: str, body: Body) -> Body:
    instance = await cell.lifecycle.resize(instance_id, Size.parse(body["size"]))
    return cell.lifecycle.observation(instance)


async def set_network(cell: Cell, instance_id: str, body: Body) -> Body:
    instance = cell.lifecycle.find(instance_id)
    await cell.lifecycle.networks.replace(instance, body)
    return cell.lifecycle.observation(instance)


async def snapshot(cell: Cell, instance_id: str, body: Body) -> Body:
    return await cell.lifecycle.snapshot(instance_id, body["label"])


async def delete(cell: Cell, instance_id: str) -> Body:
    cell.console.end_all(instance_id)
    await cell.migrations.end_all(cell.lifecycle.find(instance_id), forgets=False)
    return cell.lifecycle.observation(await cell.lifecycle.delete(instance_id))


async def erase(cell: Cell, instance_id: str) -> Body:
    cell.console.end_all(instance_id)
    await cell.migrations.end_all(cell.lifecycle.find(instance_id), forgets=True)
    instance = await cell.lifecycle.erase(instance_id)
    await cell.backups.erase(instance)
    return cell.lifecycle.observation(instance)


async def end_access(cell: Cell, instance_id: str, body: Body) -> Reply:
    cell.lifecycle.find(instance_id)
    cell.lasting_access.end(instance_id, body["holders"])
    for each in body.get("urls", []):
        cell.tokens.end(each["jti"], each["expires_at"])
    return Reply(204)


async def capacity(cell: Cell, instance_id: str) -> Body:
    instance = cell.lifecycle.find(instance_id)
    await asyncio.to_thread(measuring.measure, instance)
    observed = cell.lifecycle.observation(instance)
    size = instance.record.spec.size
    limits = {
        "storage_limit_bytes": size.storage_bytes,
        "memory_limit_bytes": size.memory_bytes,
        "connections_max": size.connections_max,
    }
    figures = ("instance_id", "storage_bytes", "memory_bytes", "connections", "cpu_s")
    return {name: observed[name] for name in figures} | limits
