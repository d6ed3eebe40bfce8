"""Sizes: of instances, and of the other hosted kinds."""

from typing import Any

from control import capacity
from control.policy.sizes import OTHER_SIZES, SIZES
from handlers import catalogue_views
from handlers.calls import CallerCall


def list_(call: CallerCall, family: str | None = None) -> dict[str, Any]:
    fits_in = capacity.regions_with_room(call.db, call.services.settings.overcommit)
    views = [catalogue_views.size(one, fits_in[one.name]) for one in SIZES.values()]
    views += [catalogue_views.other_size(one) for one in OTHER_SIZES]
    items = [view for view in views if family in (None, view["family"])]
    return {"items": items, "next_cursor": None}
