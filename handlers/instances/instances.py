"""Instances: from order to erasure, and everything there is to know of one."""

import time
from datetime import timedelta
from typing import Any, Final

from control import ordering
from control.boundary import AuditedChanges
from control.policy import backups as rules
from control.policy.violations import refuse
from control.workflows.instances import erasure, lifecycle, resizing, resuming
from control.workflows.network.networks import apply_network
from handlers import instants, paging, preconditions
from handlers.calls import OrgCall
from handlers.instances import (
    approvals,
    capacity_views,
    certificates,
    needing_approval,
    one_time,
    views,
)
from specserver import PollAgain, Reply
from storage.access.projects import Project
from storage.data import migrations
from storage.instances import changes, instances, samples
from storage.instances.instances import Instance
from storage.network import networks
from storage.pages import Page

Body = dict[str, Any]

POLL_S: Final = (0.2, 1.0)
"""How long a wait looks away: this at first, and at most."""
POLL_SHARE: Final = 0.25
"""Of the time that was waited: whoever waited long does not mind a little more."""

# Where an instance must not be any more for a status to come: waiting on is waiting in vain.
_LEAVING: Final = frozenset({"deleting", "deleted", "erasing", "erased"})
_IN_VAIN: Final = {
    "running": _LEAVING | {"failed"},
    "paused": _LEAVING | {"failed"},
    "failed": _LEAVING,
    "deleted": frozenset({"erasing", "erased"}),
    "erased": frozenset(),
}
_KINDS: Final = {column: kind for kind, column in changes.COLUMNS.items()}


def list_(
    call: OrgCall,
    limit: int,
    cursor: str | None = None,
    status: str | None = None,
    engine: str | None = None,
    name: str | None = None,
    project_id: str | None = None,
) -> Body:
    filters = {"status": status, "engine": engine, "name": name, "project_id": project_id}
    found = instances.page(
        call.db,
        call.org.id,
        scope=call.scope,
        limit=limit,
        after=paging.after(call, cursor),
        **filters,
    )
    return paging.page(call, found, views.instance)


def list_in_project(
    call: OrgCall,
    project: Project,
    limit: int,
    cursor: str | None = None,
    status: str | None = None,
    engine: str | None = None,
    name: str | None = None,
) -> Body:
    return list_(call, limit, cursor, status, engine, name, project.id)


def create(call: OrgCall, project: Project, body: Body, dry_run: bool) -> Reply:
    if dry_run:
        return Reply.ok(needing_approval.preview(call, project, body))
    if needing_approval.may_be_needed(call, project):
        shown = needing_approval.preview(call, project, body)
        if shown["approval_required"]:
            return approvals.request(call, project, body, shown)
    instance = ordering.place(call.requester, project, body)
    call.audit(target=instance.id, detail=body)
    call.emit("instance.requested.v1", views.instance_event(instance), instance)
    call.start(lifecycle.provision, instance)
    location = f"/v1/orgs/{call.org.id}/instances/{instance.id}"
    return preconditions.tagged(Reply.created(views.instance(instance), location))


def get(
    call: OrgCall,
    instance: Instance,
    timeout_s: int,
    wait_for: str | None = None,
    if_none_match: str | None = None,
) -> Reply:
    waited_s = time.monotonic() - call.exchange.started_at
    may_come = wait_for is not None and instance.status not in {wait_for, *_IN_VAIN[wait_for]}
    if may_come and waited_s < timeout_s:
        raise PollAgain(min(look_away_s(waited_s), timeout_s - waited_s))
    found = preconditions.tagged(Reply.ok(views.instance(instance)))
    return preconditions.unless_known(if_none_match, found)


def look_away_s(waited_s: float) -> float:
    """Each look costs as much as a request, and many wait at once."""
    shortest_s, longest_s = POLL_S
    return min(longest_s, max(shortest_s, waited_s * POLL_SHARE))


def update(call: OrgCall, instance: Instance, body: Body, if_match: str | None = None) -> Reply:
    _check_unchanged(instance, if_match)
    ordering.check_alteration(call.requester, instance, body)
    needing_approval.check_growth(call, instance, body)
    wanted = {_KINDS[column]: value for column, value in body.items()}
    was = {column: getattr(instance, column) for column in body}
    ordered = changes.order(call.db, instance, wanted, requested_by=call.caller.id, now=call.now)
    changed = AuditedChanges.between(was, body)
    call.audit(target=instance.id, detail=body, changes=changed)
    if all(change.status == "applied" for change in ordered):
        return preconditions.tagged(Reply.ok(views.instance(instance)))
    migrations.check_none(call.db, instance, "change")
    if "engine_version" in body:
        migrations.check_no_way_back(call.db, instance, "upgrade")
    call.start(resizing.resize, instance)
    return _accepted(call, instance)


def delete(call: OrgCall, instance: Instance, if_match: str | None = None) -> Reply:
    _check_unchanged(instance, if_match)
    instance.delete(ordering.kept_until(call.requester, instance, call.now))
    call.audit(target=instance.id, detail={"name": instance.name})
    call.start(erasure.delete, instance)
    return _accepted(call, instance)


def undelete(call: OrgCall, instance: Instance, if_match: str | None = None) -> Reply:
    _check_unchanged(instance, if_match)
    instance.undelete(call.now)
    changes.give_up(call.db, call.org.id, instance.id)
    ordering.check_return(call.requester, instance)
    needing_approval.check_return(call, instance)
    call.audit(target=instance.id, detail={"name": instance.name})
    call.start(resuming.resume, instance)
    if not networks.of_instance(call.db, instance).is_applied:
        # Replaced in the moment before it was deleted.
        call.start(apply_network, instance)
    return _accepted(call, instance)


def erase(call: OrgCall, instance: Instance, if_match: str | None = None) -> Reply:
    _check_unchanged(instance, if_match)
    instance.erase()
    call.audit(target=instance.id, detail={"name": instance.name})
    call.start(erasure.erase, instance)
    return _accepted(call, instance)


def pause(call: OrgCall, instance: Instance, if_match: str | None = None) -> Reply:
    _check_unchanged(instance, if_match)
    instance.pause()
    migrations.check_none(call.db, instance, "pause")
    call.audit(target=instance.id, detail={"name": instance.name})
    call.start(lifecycle.pause, instance)
    return _accepted(call, instance)


def resume(call: OrgCall, instance: Instance, if_match: str | None = None) -> Reply:
    _check_unchanged(instance, if_match)
    held = instance.paused_by == "idle"
    instance.resume()
    if not held:
        ordering.check_wake(call.requester, instance)
    call.audit(target=instance.id, detail={"name": instance.name})
    call.start(resuming.resume, instance)
    return _accepted(call, instance)


def _check_unchanged(instance: Instance, if_match: str | None) -> None:
    """Where callers say what they read, it is still so, and held as it is."""
    if if_match is not None:
        current = preconditions.etag(views.instance(instance))
        preconditions.check(if_match, current, "the instance")


def _accepted(call: OrgCall, instance: Instance) -> Reply:
    # The database sets `updated_at` as it writes, so the answer is made after that.
    call.db.flush()
    return preconditions.tagged(Reply.accepted(views.instance(instance)))


def changes_(call: OrgCall, instance: Instance, limit: int, cursor: str | None = None) -> Body:
    found = changes.page(
        call.db, call.org.id, instance.id, limit=limit, after=paging.after(call, cursor)
    )
    return paging.page(call, found, views.change)


def ca(call: OrgCall, instance: Instance) -> Reply:
    return certificates.of_cells(call, {instance.cell_id})


def capacity(call: OrgCall, instance: Instance) -> Body:
    week = samples.of_instance(
        call.db, call.org.id, instance.id, since=call.now - timedelta(days=7), until=call.now
    )
    return capacity_views.capacity(call, instance, week)


def metrics(
    call: OrgCall,
    instance: Instance,
    limit: int,
    cursor: str | None = None,
    from_: str | None = None,
    to: str | None = None,
) -> Body:
    until = call.now if to is None else instants.read(to, parameter="to")
    day_before = instants.before(until, timedelta(hours=24))
    since = day_before if from_ is None else instants.read(from_, parameter="from")
    last = paging.after(call, cursor)
    hours = samples.of_instance(call.db, call.org.id, instance.id, since=since, until=until)
    rest = [hour for hour in hours if last is None or instants.timestamp(hour.hour) > last]
    more = instants.timestamp(rest[limit - 1].hour) if len(rest) > limit else None
    return paging.page(call, Page(rest[:limit], more), views.metrics_hour)


def logs(call: OrgCall, instance: Instance) -> Body:
    one_time.check_provisioned(instance, "read the logs of")
    call.audit(target=instance.id, detail={"name": instance.name})
    return one_time.url(call, instance, "logs", "GET")


def dump(call: OrgCall, instance: Instance, body: Body | None = None) -> Body:
    instance.check_running("dump")
    one_time.check_reach(call, instance, "a request for a dump")
    wanted = body or {}
    refuse(rules.check_dump(instance.engine, wanted))
    call.audit(target=instance.id, detail={"name": instance.name, **wanted})
    return one_time.url(call, instance, "dump", "GET", name=instance.name, **wanted)
