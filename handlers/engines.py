"""Engines: what the cells can run now."""

from typing import Any

from handlers import catalogue_views, orders
from handlers.calls import CallerCall


def list_(call: CallerCall) -> list[dict[str, Any]]:
    offers = orders.catalogue(call).offers.values()
    return [catalogue_views.engine(offer) for offer in offers]
