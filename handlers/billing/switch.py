"""Whether this installation charges anything; where not, billing answers nothing."""

from control.policy.prices import PriceBook
from handlers.calls import CallerCall
from specserver import Conflict


def prices(call: CallerCall) -> PriceBook:
    """What things cost; raises Conflict (`billing_off`) where money is switched off."""
    book = call.services.settings.prices
    if not book.is_on:
        raise Conflict(
            "this installation charges nothing: its operator has switched money off"
            " (the setting `money`)",
            code="billing_off",
        )
    return book
