"""Plans: what an organization may have."""

from typing import Any

from control.policy.plans import PLANS
from handlers.calls import CallerCall
from handlers.catalogue import views


def list_(call: CallerCall) -> dict[str, Any]:
    idle_pause_s = call.services.settings.idle_pause_s
    items = [views.plan(plan, idle_pause_s) for plan in PLANS.values()]
    return {"items": items, "next_cursor": None}
