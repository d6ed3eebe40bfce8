"""Whether there is money at all: an installation can switch it off."""

from control.boundary import Call
from control.policy.prices import PriceBook
from specserver import Conflict


def prices(call: Call) -> PriceBook:
    """Those of the installation. Raises Conflict where it has switched money off."""
    book = call.services.settings.prices
    if not book.is_on:
        detail = "this installation charges nothing: its operator has switched billing off"
        raise Conflict(detail, code="billing_off")
    return book
