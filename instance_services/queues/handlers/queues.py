"""Operations of the tag Queues, on the database of the instance in the path."""

from functools import partial
from typing import Any

from instance_services.queues import store
from instance_services.queues.service import Service
from specserver import Reply

Body = dict[str, Any]


async def list_(service: Service, instance_id: str, limit: int, after: str = "") -> Body:
    async with service.database(instance_id) as database:
        return await store.page(database, limit=limit, after=after)


async def create(service: Service, instance_id: str, body: Body, operation_key: str) -> Reply:
    name, unlogged = body["name"], body["unlogged"]
    async with service.database(instance_id) as database:
        work = partial(store.create, database, name, unlogged=unlogged)
        key = f"create {name} {operation_key}"
        made = await store.once(database, key, service.adding(instance_id, work))
    return Reply(201, made)


async def delete(service: Service, instance_id: str, queue_name: str) -> Reply:
    async with service.database(instance_id) as database, database.transaction():
        await store.drop(database, queue_name)
    return Reply.no_content()


async def permit(service: Service, instance_id: str, queue_name: str, body: Body) -> Body:
    async with service.database(instance_id) as database:
        return await store.permit(database, queue_name, body["data_api_roles"])


async def send(
    service: Service, instance_id: str, queue_name: str, body: Body, operation_key: str
) -> Reply:
    messages, delay_s = body["messages"], body["delay_seconds"]
    async with service.database(instance_id) as database:
        work = partial(store.send, database, queue_name, messages, delay_s)
        key = f"send {queue_name} {operation_key}"
        sent = await store.once(database, key, service.adding(instance_id, work))
    return Reply(201, sent)


async def read(service: Service, instance_id: str, queue_name: str, body: Body) -> Body:
    count, timeout_s = body["count"], body["visibility_timeout_s"]
    async with service.database(instance_id) as database:
        return await store.read(database, queue_name, count=count, timeout_s=timeout_s)


async def remove(
    service: Service, instance_id: str, queue_name: str, body: Body, operation_key: str
) -> Body:
    archive, ids = body["archive"], body["message_ids"]
    act = store.archive if archive else store.delete
    async with service.database(instance_id) as database:
        key = f"{act.__name__} {queue_name} {operation_key}"
        work = partial(act, database, queue_name, ids)
        # What is archived is copied, and its place in the queue is not given back.
        bounded = service.adding(instance_id, work) if archive else work
        return await store.once(database, key, bounded)


async def purge(service: Service, instance_id: str, queue_name: str, operation_key: str) -> Body:
    async with service.database(instance_id) as database:
        key = f"purge {queue_name} {operation_key}"
        return await store.once(database, key, lambda: store.purge(database, queue_name))
