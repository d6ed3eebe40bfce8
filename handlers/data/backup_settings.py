"""Handlers of the tag Backup settings: how often an instance is backed up, and kept how long."""

from typing import Any

from control.policy import backups as rules
from control.policy import recovery
from control.policy.plans import PLANS
from control.policy.violations import refuse
from control.workflows.data.archiving import tell, tell_lane
from handlers.calls import OrgCall
from handlers.data import backup_views as views
from storage.data import backup_settings
from storage.instances.instances import Instance

Body = dict[str, Any]


def get(call: OrgCall, instance: Instance) -> Body:
    return views.settings(call, instance, backup_settings.of_instance(call.db, instance))


def update(call: OrgCall, instance: Instance, body: Body) -> Body:
    instance.change(waits=False)
    several = "the settings are invalid in {} places"
    plan = PLANS[call.org.plan]
    archiving = recovery.check_archiving(plan, instance.engine, body.get("continuous_archiving"))
    refuse([*rules.check_overrides(plan, body), *archiving], several)
    chosen = backup_settings.of_instance(call.db, instance)
    chosen.change(body, call.caller.id, call.now)
    call.db.add(chosen)
    call.db.flush()
    call.audit(target=instance.id, detail=body)
    if "continuous_archiving" in body:
        call.start(tell, instance, lane=tell_lane(instance.id))
    return views.settings(call, instance, chosen)
