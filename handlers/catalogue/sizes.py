"""Sizes: of instances, and of the other hosted kinds."""

from typing import Any

from control.ordering import capacity
from control.policy.sizes import OTHER_SIZES, SIZES
from handlers.calls import CallerCall
from handlers.catalogue import views


def list_(call: CallerCall, family: str | None = None) -> dict[str, Any]:
    fits_in = capacity.regions_with_room(call.db, call.services.settings.overcommit)
    prices = call.services.settings.prices.at(call.now)
    every = [views.size(one, fits_in[one.name], prices) for one in SIZES.values()]
    every += [views.other_size(one, prices) for one in OTHER_SIZES]
    items = [view for view in every if family in (None, view["family"])]
    return {"items": items, "next_cursor": None}
