"""Handlers of the tag Backup settings: how often an instance is backed up, and kept how long."""

from typing import Any

from control.policy import backups as rules
from control.policy.plans import PLANS
from control.policy.violations import refuse
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
    refuse(rules.check_overrides(PLANS[call.org.plan], body), several)
    chosen = backup_settings.of_instance(call.db, instance)
    chosen.change(body, call.caller.id, call.now)
    call.db.add(chosen)
    call.db.flush()
    call.audit(target=instance.id, detail=body)
    return views.settings(call, instance, chosen)
