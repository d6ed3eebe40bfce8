"""Engines: what the cells can run now."""

from typing import Any

from control import ordering
from handlers.calls import CallerCall
from handlers.catalogue import views


def list_(call: CallerCall) -> list[dict[str, Any]]:
    offers = ordering.catalogue(call.db).offers.values()
    return [views.engine(offer) for offer in offers]
