"""Payments: what the payment provider tells of invoices that it collects."""

from typing import Any

from control.billing import stripe_notices
from control.boundary import Call
from control.workflows.billing import payments
from specserver import Unauthenticated

Body = dict[str, Any]


def receive(call: Call, body: Body, stripe_signature: str | None = None) -> Body:
    account = call.services.settings.stripe
    signed = call.exchange.body_bytes, stripe_signature
    if account is None or not stripe_notices.is_signed(account, *signed):
        raise Unauthenticated(
            "the event is not signed with the secret of this webhook, or too old",
            code="signature_refused",
        )
    notice = stripe_notices.read(body)
    if notice is None:
        return {"outcome": "ignored"}
    return {"outcome": "taken" if payments.note(call.db, body["id"], notice) else "known"}
