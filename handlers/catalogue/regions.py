"""Regions: where there are cells."""

from typing import Any

from control import ordering
from handlers.calls import CallerCall
from handlers.catalogue import views
from storage.catalogue import cells


def list_(call: CallerCall) -> dict[str, Any]:
    every = cells.every(call.db)
    catalogue = ordering.catalogue(call.db)
    by_region = {
        name: [cell for cell in every if cell.region == name] for name in catalogue.regions
    }
    items = [views.region(name, its, catalogue, call.now) for name, its in by_region.items()]
    return {"items": items, "next_cursor": None}
