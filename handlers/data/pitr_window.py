"""Handlers of the tag PITR window: the moments that an instance can be restored to."""

from typing import Any

from control.policy import recovery as rules
from control.policy.plans import PLANS
from handlers.calls import OrgCall
from handlers.data import moments
from handlers.instants import timestamp, timestamp_or_none
from storage.data import backup_settings, recovery_windows
from storage.instances.instances import Instance

Body = dict[str, Any]


def get(call: OrgCall, instance: Instance) -> Body:
    plan, engine = PLANS[call.org.plan], instance.engine
    chosen = backup_settings.of_instance(call.db, instance).continuous_archiving
    known = recovery_windows.of_instance(call.db, instance)
    shown = {
        "instance_id": instance.id,
        "engine_supported": rules.is_supported(engine),
        "plan_days": plan.pitr_days,
        "continuous_archiving": rules.is_archived(plan, engine, chosen),
    }
    told: Body = {"status": known.status, "reason": known.reason, "ranges": known.ranges}
    seen_at = known.seen_at
    if instance.status != "erased" and (now := moments.observed(call, instance)) is not None:
        told, seen_at = {name: now[name] for name in told}, call.now
    found = moments.window(call, told["ranges"])
    return {
        **shown,
        "status": told["status"],
        "status_reason": told["reason"],
        "earliest_restorable_at": timestamp(found[0].begins_at) if found else None,
        "latest_restorable_at": timestamp(found[-1].ends_at) if found else None,
        "ranges": [
            {"begins_at": timestamp(each.begins_at), "ends_at": timestamp(each.ends_at)}
            for each in found
        ],
        "as_of": timestamp_or_none(seen_at),
    }
