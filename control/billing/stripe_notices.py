"""Events of Stripe: whether one is signed, and what it says of an invoice of ours."""

import re
from collections.abc import Mapping
from typing import Any, Final

from control.billing.collecting import HEARD, Notice
from control.policy.payments import StripeAccount

TOLERANCE_S: Final = 300
_INVOICE: Final = re.compile("invoice_[0-9A-HJKMNP-TV-Z]{26}")
_THEIRS: Final = re.compile("in_[A-Za-z0-9_]{1,250}")
_CURRENCY: Final = re.compile("[a-z]{3}")
_CENTS_MAX: Final = 10**15


def is_signed(account: StripeAccount, body: bytes, signature: str | None) -> bool:
    """By the secret of the webhook, over these bytes, and at most five minutes ago."""
    from stripe import SignatureVerificationError, WebhookSignature  # noqa: PLC0415 -- slow to import

    try:
        text = body.decode("utf-8")
        return bool(
            WebhookSignature.verify_header(
                text, signature or "", account.webhook_secret, TOLERANCE_S
            )
        )
    except (SignatureVerificationError, ValueError):
        return False


def read(event: Mapping[str, Any]) -> Notice | None:
    """None for what is about no invoice of ours, which an account may well have too."""
    kind, of = event["type"], event["data"]["object"]
    if kind not in HEARD or not isinstance(of, Mapping):
        return None
    metadata = of.get("metadata")
    ours = metadata.get("invoice_id") if isinstance(metadata, Mapping) else None
    theirs, cents, currency = of.get("id"), of.get("amount_paid", 0), of.get("currency")
    is_whole = type(cents) is int and 0 <= cents <= _CENTS_MAX
    told = theirs, ours, currency
    if not is_whole or not all(map(_is, (_THEIRS, _INVOICE, _CURRENCY), told)):
        return None
    return Notice(kind, str(theirs), str(ours), cents, str(currency).upper())


def _is(pattern: re.Pattern[str], value: object) -> bool:
    return isinstance(value, str) and pattern.fullmatch(value) is not None
