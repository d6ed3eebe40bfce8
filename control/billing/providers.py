"""Payment providers: what is asked of one. The one is Stripe, in `stripe_provider`.

Amounts are in cents. Each call has a key under which the provider does it once, however often it
is asked within a day. `ProviderRefused` is a refusal that would be the same again; whatever else
is raised is tried again.
"""

from dataclasses import dataclass
from datetime import datetime
from typing import Protocol


class ProviderRefused(Exception):  # noqa: N818 -- a fact about what was asked
    """The message is the provider's, for the operator."""


@dataclass(frozen=True)
class Wanted:
    """An invoice that is to be collected: of whom, how much, and until when."""

    invoice_id: str
    number: str
    description: str
    org_id: str
    name: str
    email: str
    cents: int
    currency: str
    due_at: datetime


class PaymentProvider(Protocol):
    def customer(self, wanted: Wanted) -> str:
        """Make the customer; gives the provider's id of it."""

    def invoice(self, wanted: Wanted, customer_id: str) -> str:
        """Make an invoice that asks for nothing yet; gives the provider's id of it."""

    def ask(self, wanted: Wanted, customer_id: str, provider_invoice_id: str) -> str | None:
        """Have it ask for the amount, from now on by itself; gives the page where people pay."""

    def reduce(self, provider_invoice_id: str, cents: int, key: str) -> None:
        """Ask for so much less."""

    def refund(self, provider_invoice_id: str, cents: int, key: str) -> None:
        """Pay so much of what was paid back."""

    def void(self, provider_invoice_id: str, key: str) -> None:
        """Ask for nothing any more."""

    def settle(self, provider_invoice_id: str, key: str) -> None:
        """It was paid elsewhere."""
