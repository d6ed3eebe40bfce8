"""With which payment provider invoices are collected; without one, nobody is charged."""

from pathlib import Path
from typing import TYPE_CHECKING, Literal

from pydantic import BaseModel, Field, field_validator

from menagerie import setting_values
from menagerie.errors import SettingsError

if TYPE_CHECKING:
    from control.policy.payments import StripeAccount


class PaymentSettings(BaseModel):
    stripe_api_key_file: str = Field(
        "", description="file with the secret API key of Stripe; empty: nothing is charged"
    )
    stripe_webhook_secret_file: str = Field(
        "", description="file with the signing secret of the webhook at Stripe"
    )
    stripe_collection: Literal["send_invoice", "charge_automatically"] = Field(
        "send_invoice",
        description="Stripe asks customers to pay, or charges the card that they saved there",
    )

    @field_validator("stripe_api_key_file")
    @classmethod
    def _key_is_one(cls, path: str) -> str:
        return setting_values.checked_file(path, setting_values.check_stripe_key)

    @field_validator("stripe_webhook_secret_file")
    @classmethod
    def _secret_is_one(cls, path: str) -> str:
        return setting_values.checked_file(path, setting_values.check_stripe_webhook_secret)


def stripe_of(settings: PaymentSettings, currency: str) -> "StripeAccount | None":
    """The account, or None. Raises SettingsError for half of one, or a currency of another kind."""
    from control.policy.payments import ZERO_DECIMAL, StripeAccount  # noqa: PLC0415 -- slow to import

    paths = settings.stripe_api_key_file, settings.stripe_webhook_secret_file
    if not any(paths):
        return None
    if not all(paths):
        raise SettingsError(
            "stripe_api_key_file and stripe_webhook_secret_file: set both, or none;"
            " without the second nobody tells what was paid"
        )
    if currency in ZERO_DECIMAL:
        raise SettingsError(f"stripe_api_key_file: {currency} has no cents, and is not supported")
    key, secret = (Path(path).read_text(encoding="utf-8").strip() for path in paths)
    return StripeAccount(key, secret, settings.stripe_collection)
