"""Handlers of the tag Backup settings: how often an instance is backed up, and kept how long."""

from typing import Any, Final

from control.boundary import AuditedChanges
from control.policy import backups as rules
from control.policy import recovery
from control.policy.plans import PLANS
from control.policy.violations import refuse
from control.workflows.data import archiving, copies
from control.workflows.data.backups import lane
from handlers.calls import OrgCall
from handlers.data import backup_views as views
from storage.data import backup_settings
from storage.instances.instances import Instance

Body = dict[str, Any]
# By member, what its cell is told by.
_TOLD: Final = {"continuous_archiving": archiving.tell, "copy_target": copies.tell}


def get(call: OrgCall, instance: Instance) -> Body:
    return views.settings(call, instance, backup_settings.of_instance(call.db, instance))


def update(call: OrgCall, instance: Instance, body: Body) -> Body:
    instance.change(waits=False)
    several = "the settings are invalid in {} places"
    plan = PLANS[call.org.plan]
    wrong = recovery.check_archiving(plan, instance.engine, body.get("continuous_archiving"))
    refuse([*rules.check_overrides(plan, body), *wrong], several)
    copies.check_target(call.db, instance, body.get("copy_target"))
    chosen = backup_settings.of_instance(call.db, instance)
    changes = AuditedChanges.of(chosen, body)
    chosen.change(body, call.caller.id, call.now)
    call.db.add(chosen)
    call.db.flush()
    call.audit(target=instance.id, detail=body, changes=changes)
    for member in body.keys() & _TOLD.keys():
        call.start(_TOLD[member], instance, lane=lane(_TOLD[member], instance.id))
    return views.settings(call, instance, chosen)
