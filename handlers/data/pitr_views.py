"""PITR windows as the JSON that openapi.yaml describes."""

from collections.abc import Mapping
from datetime import datetime
from typing import Any, Final

from control.policy import recovery as rules
from control.policy.plans import PLANS
from handlers.calls import OrgCall
from handlers.data import moments
from handlers.instants import timestamp, timestamp_or_none
from storage.instances.instances import Instance

Json = dict[str, Any]
NOTHING: Final[Json] = {"status": "off", "reason": None, "ranges": []}
"""What is told of an instance that has no archived WAL."""


def allowed(call: OrgCall, instance: Instance, chosen: bool | None) -> Json:
    plan, engine = PLANS[call.org.plan], instance.engine
    return {
        "instance_id": instance.id,
        "engine_supported": rules.is_supported(engine),
        "plan_days": plan.pitr_days,
        "continuous_archiving": rules.is_archived(plan, engine, chosen),
    }


def window(call: OrgCall, told: Mapping[str, Any], seen_at: datetime | None) -> Json:
    found = moments.window(call, told["ranges"])
    return {
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
