"""Engines: what the cells can run now."""

from typing import Any

from control import ordering
from handlers import catalogue_views
from handlers.calls import CallerCall


def list_(call: CallerCall) -> list[dict[str, Any]]:
    offers = ordering.catalogue(call.db).offers.values()
    return [catalogue_views.engine(offer) for offer in offers]
