"""Stripe: an invoice there for each of ours, with one item of what is due, and one page to pay.

Its invoice is how money is asked for; ours is the one that counts, so it has the lines and taxes.
Imported only where an account is set.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Final

import stripe
from stripe import RequestsClient, StripeClient

from control.billing.providers import ProviderRefused, Wanted
from control.policy.payments import StripeAccount

TIMEOUT_S: Final = 20


class StripeProvider:
    """Implements `PaymentProvider`."""

    def __init__(self, account: StripeAccount) -> None:
        # Nothing about our requests goes along with the next one.
        stripe.enable_telemetry = False
        self._collection = account.collection
        self._api = StripeClient(
            account.api_key,
            base_addresses={"api": account.api},
            # The engine of work tries again, under the same key.
            max_network_retries=0,
            http_client=RequestsClient(timeout=TIMEOUT_S),
        ).v1

    def customer(self, wanted: Wanted) -> str:
        told: dict[str, Any] = {"name": wanted.name, "metadata": {"org_id": wanted.org_id}}
        if wanted.email:
            told["email"] = wanted.email
        made = self._post(self._api.customers.create, told, f"{wanted.invoice_id}:customer")
        return str(made.id)

    def invoice(self, wanted: Wanted, customer_id: str) -> str:
        told: dict[str, Any] = {
            "customer": customer_id,
            "currency": wanted.currency.lower(),
            "collection_method": self._collection,
            "description": wanted.description,
            "metadata": {"invoice_id": wanted.invoice_id, "number": wanted.number},
            "pending_invoice_items_behavior": "exclude",
            # Until it has its item: it would be paid by nothing.
            "auto_advance": False,
        }
        if self._collection == "send_invoice":
            told["due_date"] = int(wanted.due_at.timestamp())
        made = self._post(self._api.invoices.create, told, f"{wanted.invoice_id}:invoice")
        return str(made.id)

    def ask(self, wanted: Wanted, customer_id: str, provider_invoice_id: str) -> str | None:
        with _refusals():
            found = self._api.invoices.retrieve(provider_invoice_id)
        if found.status == "draft" and not found.total:
            told = {
                "customer": customer_id,
                "invoice": provider_invoice_id,
                "amount": wanted.cents,
                "currency": wanted.currency.lower(),
                "description": wanted.description,
            }
            self._post(self._api.invoice_items.create, told, f"{wanted.invoice_id}:item")
        if found.status == "draft":
            found = self._of(
                self._api.invoices.finalize_invoice,
                provider_invoice_id,
                {"auto_advance": True},
                f"{wanted.invoice_id}:finalize",
            )
        url = found.hosted_invoice_url
        return None if url is None else str(url)

    def reduce(self, provider_invoice_id: str, cents: int, key: str) -> None:
        told = {"invoice": provider_invoice_id, "amount": cents}
        self._post(self._api.credit_notes.create, told, key)

    def refund(self, provider_invoice_id: str, cents: int, key: str) -> None:
        told = {"invoice": provider_invoice_id, "amount": cents, "refund_amount": cents}
        self._post(self._api.credit_notes.create, told, key)

    def void(self, provider_invoice_id: str, key: str) -> None:
        self._of(self._api.invoices.void_invoice, provider_invoice_id, {}, key)

    def settle(self, provider_invoice_id: str, key: str) -> None:
        elsewhere = {"paid_out_of_band": True}
        self._of(self._api.invoices.pay, provider_invoice_id, elsewhere, key)

    def _post(self, act: Callable[..., Any], told: dict[str, Any], key: str) -> Any:
        with _refusals():
            return act(told, {"idempotency_key": key})

    def _of(self, act: Callable[..., Any], of: str, told: dict[str, Any], key: str) -> Any:
        with _refusals():
            return act(of, told, {"idempotency_key": key})


@contextmanager
def _refusals() -> Iterator[None]:
    """A refusal of what was asked is final; a limit, an outage and a wrong key may pass."""
    try:
        yield
    except (stripe.InvalidRequestError, stripe.CardError) as refused:
        raise ProviderRefused(str(refused.user_message or refused)[:500]) from refused
