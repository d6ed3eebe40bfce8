"""Handlers of the tag Branches: instances that begin with the data of another."""

from datetime import datetime
from typing import Any

from control import ordering
from control.workflows.data import restores as restoring
from control.workflows.instances import lifecycle
from handlers import paging, preconditions
from handlers.calls import OrgCall
from handlers.data import moments
from handlers.instances import needing_approval, views
from specserver import Reply
from storage.data import restores
from storage.data.backups import Backup
from storage.instances import instances
from storage.instances.instances import Instance

Body = dict[str, Any]


def list_(call: OrgCall, instance: Instance, limit: int, cursor: str | None = None) -> Body:
    after = paging.after(call, cursor)
    found = instances.page(
        call.db, call.org.id, scope=call.scope, limit=limit, after=after, branch_of=instance.id
    )
    return paging.page(call, found, views.instance)


def create(call: OrgCall, instance: Instance, body: Body) -> Reply:
    # It is another instance: what is held for this one alone is not held for it.
    call.require("instances:write", instance.place.of_project)
    instance.check_branchable()
    at = moments.asked(body)
    base = None if at is None else _base(call, instance, at)
    branch = ordering.place_branch(call.requester, instance, body)
    needing_approval.check_new(call, branch)
    call.audit(target=branch.id, detail={"branch_of": instance.id, **body})
    call.emit("instance.requested.v1", views.instance_event(branch), branch)
    if base is None:
        call.start(lifecycle.provision, branch)
    else:
        restores.request(call.db, base, branch, "new_instance", call.caller.id, at=at)
        call.start(restoring.new_instance, branch)
    location = f"/v1/orgs/{call.org.id}/instances/{branch.id}"
    return preconditions.tagged(Reply.created(views.instance(branch), location))


def _base(call: OrgCall, instance: Instance, at: datetime) -> Backup:
    """Which is restored, as by `backups.restore`."""
    call.require("backups:write", instance.place)
    return moments.base_of_version(call, instance, at)
