"""Plans: what an organization may have."""

from typing import Any

from control.policy.plans import PLANS
from handlers.calls import CallerCall
from handlers.catalogue import views


def list_(call: CallerCall) -> dict[str, Any]:
    settings = call.services.settings
    prices = settings.prices.at(call.now)
    items = [views.plan(plan, settings.idle_pause_s, prices) for plan in PLANS.values()]
    return {"items": items, "next_cursor": None}
