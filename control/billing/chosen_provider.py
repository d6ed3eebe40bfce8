"""The payment provider that the operator has set."""

from control.billing.providers import PaymentProvider
from control.settings import ControlSettings


def provider_of(settings: ControlSettings) -> PaymentProvider | None:
    """None where there is none: then nobody is charged."""
    if settings.stripe is None:
        return None
    from control.billing.stripe_provider import StripeProvider  # noqa: PLC0415 -- slow to import

    return StripeProvider(settings.stripe)
