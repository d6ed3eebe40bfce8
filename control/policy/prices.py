"""What things cost, at list prices, in whole US cents."""

from typing import Final

from control.policy.sizes import GB, Size

CURRENCY: Final = "USD"
# Storage beyond what the size includes, per started GB and month.
STORAGE_USD_CENTS_PER_GB: Final = 12


def storage_month_usd_cents(size: Size, storage_bytes: int) -> int:
    """What storage adds to the size's price, for a month. It is billed while paused, too."""
    extra_bytes = max(0, storage_bytes - size.storage_bytes_included)
    return -(-extra_bytes // GB) * STORAGE_USD_CENTS_PER_GB


def instance_month_usd_cents(size: Size, storage_bytes: int) -> int:
    """A whole month of running."""
    return size.price_usd_cents + storage_month_usd_cents(size, storage_bytes)


def month_usd_cents(size: Size, storage_bytes: int, *, runs: bool) -> int:
    """A whole month of running, or of being paused."""
    of = instance_month_usd_cents if runs else storage_month_usd_cents
    return of(size, storage_bytes)
