"""Handlers of the tag Backups: copies of an instance's data, made, shown, removed and restored."""

from typing import Any

from control import ordering
from control.policy import backups as rules
from control.policy import quotas
from control.policy.plans import PLANS
from control.policy.violations import refuse
from control.workflows.data import backups as making
from control.workflows.data import restores as restoring
from control.workflows.data import retention
from handlers import instants, paging
from handlers.calls import OrgCall
from handlers.data import backup_views as views
from handlers.data import moments, progress, restore_views
from handlers.instances import needing_approval, one_time
from handlers.instances.views import instance_event
from specserver import Conflict, Forbidden, Reply
from storage.access import projects
from storage.access.projects import Project
from storage.data import backups, migrations, restores
from storage.data.backups import Backup
from storage.errors import RecordNotFound
from storage.instances.instances import Instance

Body = dict[str, Any]


def list_(
    call: OrgCall,
    instance: Instance,
    limit: int,
    cursor: str | None = None,
    status: str | None = None,
    kind: str | None = None,
) -> Body:
    after = paging.after(call, cursor)
    found = backups.page(call.db, instance, limit=limit, after=after, status=status, kind=kind)
    return paging.page(call, found, views.of(call, instance))


def create(call: OrgCall, instance: Instance, body: Body) -> Reply:
    instance.check_backed_up()
    if backups.first_open(call.db, instance, "manual") is not None:
        raise Conflict("a manual backup of the instance is being made; wait until it is completed")
    held = backups.count_manual(call.db, call.org.id)
    stored_bytes = backups.stored_bytes(call.db, call.org.id)
    refuse(quotas.check_one_more_backup(PLANS[call.org.plan], held, stored_bytes))
    by = {"label": body.get("label"), "requested_by": call.caller.id}
    backup = backups.request(call.db, instance, "manual", **by)
    call.audit(target=backup.id, detail={"instance": instance.id, **body})
    lane = making.lane(making.create, instance.id)
    call.start(making.create, instance, lane=lane, backup_id=backup.id)
    base = f"/v1/orgs/{call.org.id}/instances/{instance.id}/backups"
    return Reply.created(views.of(call, instance)(backup), f"{base}/{backup.id}")


def get(call: OrgCall, instance: Instance, backup: Backup) -> Body:
    shown = views.of(call, instance)(backup)
    return {**shown, "progress": progress.of_backup(call, instance, backup)}


def delete(call: OrgCall, instance: Instance, backup: Backup) -> Reply:
    if backup.id in restores.needed(call.db, instance):
        raise Conflict("cannot delete a backup that is being restored; wait until that has ended")
    if backup.id in retention.needed_by_window(call.db, instance):
        raise Conflict(
            "cannot delete a backup that point-in-time recovery needs: delete it once a newer one"
            f" is {PLANS[call.org.plan].pitr_days} days old"
        )
    backup.delete()
    call.audit(target=backup.id, detail={"instance": instance.id, "label": backup.label})
    call.start(making.drop, instance, lane=making.lane(making.drop, instance.id))
    return Reply.accepted(views.of(call, instance)(backup))


def restore(call: OrgCall, instance: Instance, backup: Backup, body: Body) -> Reply:
    refuse(rules.check_restore(body, instance.name), "the restore is invalid in {} places")
    backup.check_restorable()
    if (at := moments.asked(body)) is not None:
        backup = moments.base(call, instance, at)
    in_place = body.get("mode") == "in_place"
    target = (_replaced if in_place else _placed)(call, instance, backup, body)
    mode = "in_place" if in_place else "new_instance"
    made = restores.request(call.db, backup, target, mode, call.caller.id, at=at)
    about = {"backup": backup.id, "instance": target.id, "mode": mode}
    call.audit(target=made.id, detail=about | ({"at": body["at"]} if at else {}))
    call.start(restoring.in_place if in_place else restoring.new_instance, target)
    location = f"/v1/orgs/{call.org.id}/instances/{instance.id}/restores/{made.id}"
    return Reply.created(restore_views.restore(made), location)


def download(call: OrgCall, instance: Instance, backup: Backup) -> Body:
    backup.check_downloadable()
    if instance.desired_status == "erased":
        raise Conflict(f"cannot download a backup of an instance that is {instance.status}")
    one_time.check_reach(call, instance, "a download")
    call.audit(target=backup.id, detail={"instance": instance.id, "name": instance.name})
    return one_time.url(call, instance, "download", "GET", name=instance.name, backup_id=backup.id)


def _replaced(call: OrgCall, instance: Instance, backup: Backup, _body: Body) -> Instance:
    call.require("instances:write", instance.place)
    if instance.needs_room:
        ordering.check_wake(call.requester, instance, "restore")
    instance.restore()
    migrations.check_free(call.db, instance, "restore")
    if backup.engine_version != instance.engine_version:
        raise Conflict(
            f"the backup is of {backup.engine} {backup.engine_version}, and the instance has become"
            f" {instance.engine_version}: restore it into a new instance"
        )
    return instance


def _placed(call: OrgCall, instance: Instance, backup: Backup, body: Body) -> Instance:
    if instance.desired_status == "erased":
        raise Conflict(f"cannot restore a backup of an instance that is {instance.status}")
    project = _project(call, body.get("project_id") or instance.project_id)
    if project.id != instance.project_id:
        # Others read the data there, and so may whoever has it restored.
        call.require("data:export", instance.place)
    made = ordering.place_restored(call.requester, instance, backup, project, body)
    needing_approval.check_new(call, made)
    call.emit("instance.requested.v1", instance_event(made), made)
    return made


def _project(call: OrgCall, project_id: str | None) -> Project:
    """Where the new instance belongs, if the caller may have one there."""
    project = projects.fetch(call.db, call.org.id, project_id or "")
    if not call.caller.rights.has("projects:read", project.place):
        raise RecordNotFound("project not found")
    call.require("instances:write", project.place)
    return project


def health(call: OrgCall, month: str | None = None) -> Body:
    if call.org.plan not in rules.HEALTH_PLANS:
        plans = " or ".join(rules.HEALTH_PLANS)
        detail = f"backup health needs the plan {plans}; this is the {call.org.plan} plan"
        raise Forbidden(detail, code="plan_required")
    named = month or instants.timestamp(call.now)[: len("2026-01")]
    since, until = rules.month(named)
    ended = backups.ended_between(call.db, call.org.id, since, until, scope=call.scope)
    oldest = backups.oldest_restorable(call.db, call.org.id, scope=call.scope)
    return views.health(named, ended, oldest)
