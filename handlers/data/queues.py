"""Handlers of the tag Queues: message queues in the database of a postgres instance.

The cell does what is asked, and no transaction of ours waits for it; see decision 0010.
"""

from typing import Any

from control.boundary import allow_list
from control.cells.queues import Queues
from handlers.calls import OrgCall
from handlers.data import views
from specserver import Conflict, Reply
from storage.instances.instances import Instance
from storage.network import networks

Body = dict[str, Any]


def list_(call: OrgCall, instance: Instance, limit: int, cursor: str | None = None) -> Body:
    after = views.after(call, cursor)
    found = _queues(call, instance).page(limit=limit, after=after)
    return views.page(call, found)


def create(call: OrgCall, instance: Instance, body: Body) -> Reply:
    name, unlogged = body["name"], body.get("unlogged", False)
    made = _queues(call, instance).create(name, unlogged=unlogged, key=call.operation_key)
    call.audit(target=instance.id, detail={"queue": name, "unlogged": unlogged})
    base = f"/v1/orgs/{call.org.id}/instances/{instance.id}/queues"
    return Reply.created(made, f"{base}/{name}")


def delete(call: OrgCall, instance: Instance, queue_name: str) -> Reply:
    _queues(call, instance).delete(queue_name)
    call.audit(target=instance.id, detail={"queue": queue_name})
    return Reply.no_content()


def permit(call: OrgCall, instance: Instance, queue_name: str, body: Body) -> Body:
    roles = body["data_api_roles"]
    permitted = _queues(call, instance).permit(queue_name, roles)
    call.audit(target=instance.id, detail={"queue": queue_name, "data_api_roles": roles})
    return permitted


def send(call: OrgCall, instance: Instance, queue_name: str, body: Body) -> Reply:
    messages, delay_s = body["messages"], body.get("delay_seconds", 0)
    queues = _queues(call, instance)
    return Reply(
        201, queues.send(queue_name, messages, delay_s=int(delay_s), key=call.operation_key)
    )


def read(call: OrgCall, instance: Instance, queue_name: str, body: Body) -> Body:
    count, timeout_s = body.get("count", 1), body.get("visibility_timeout_s", 30)
    queues = _queues(call, instance)
    return queues.read(queue_name, count=int(count), timeout_s=int(timeout_s))


def delete_messages(call: OrgCall, instance: Instance, queue_name: str, body: Body) -> Body:
    return _removed(call, instance, queue_name, body, archive=False)


def archive_messages(call: OrgCall, instance: Instance, queue_name: str, body: Body) -> Body:
    return _removed(call, instance, queue_name, body, archive=True)


def purge(call: OrgCall, instance: Instance, queue_name: str) -> Body:
    purged = _queues(call, instance).purge(queue_name, key=call.operation_key)
    call.audit(target=instance.id, detail={"queue": queue_name, "purged": purged["purged"]})
    return purged


def _removed(
    call: OrgCall, instance: Instance, queue_name: str, body: Body, *, archive: bool
) -> Body:
    queues = _queues(call, instance)
    ids = [int(each) for each in body["message_ids"]]
    return queues.remove(queue_name, ids, archive=archive, key=call.operation_key)


def _queues(call: OrgCall, instance: Instance) -> Queues:
    """Those of an instance that has some and runs; the database is let go of until they answer."""
    if instance.engine != "postgres":
        raise Conflict(f"queues need a postgres instance; this instance is {instance.engine}")
    if instance.status != "running":
        hint = "; resume it first" if instance.status == "paused" else ""
        raise Conflict(f"queues need a running instance; this instance is {instance.status}{hint}")
    # Messages are rows: who may not connect to the database gets none of them this way either.
    allow_list.check(networks.of_instance(call.db, instance), call.ip, "the queue API")
    queues = call.services.cells.for_instance(call.db, instance).queues(instance.id)
    call.release_connection()
    return queues
