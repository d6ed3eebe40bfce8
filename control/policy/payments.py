"""With whom invoices are collected, as the operator has set it."""

from dataclasses import dataclass, field
from typing import Final

ZERO_DECIMAL: Final = frozenset(
    {
        *("BIF", "CLP", "DJF", "GNF", "JPY", "KMF", "KRW", "MGA", "PYG", "RWF", "UGX", "VND"),
        *("VUV", "XAF", "XOF", "XPF"),
    }
)
"""Currencies that Stripe counts in wholes; amounts of ours are in hundredths."""
API: Final = "https://api.stripe.com"


@dataclass(frozen=True)
class StripeAccount:
    """`collection` is `send_invoice` or `charge_automatically`, as Stripe calls them."""

    api_key: str = field(repr=False)
    webhook_secret: str = field(repr=False)
    collection: str = "send_invoice"
    api: str = API
