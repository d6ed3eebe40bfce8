"""What the operator's commands for revenue and previews of prices do, and how they tell it."""

import csv
import io
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any, Final

from control.billing import revenue
from control.billing.revenue import PricePreview, Revenue
from control.policy import price_lists
from control.policy.months import Month, month_of, months
from control.policy.price_lists import PriceListInvalid
from control.policy.prices import PriceBook
from control.services import Services
from menagerie.errors import SettingsError
from menagerie.invoice_books import named_month, of_month
from storage.billing import invoice_runs

MONTHS_MAX: Final = 120
PRICES_BYTES_MAX: Final = 1 << 20
SHOWN: Final = (
    *("month", "currency", "invoices", "subtotal_cents", "credits_cents", "tax_cents"),
    *("total_cents", "paid_cents", "open_cents"),
)
"""Columns of the table; JSON and CSV have all."""


def by_month(services: Services, first: str | None, last: str | None) -> list[dict[str, Any]]:
    """A row for each month and currency with invoices. Raises SettingsError."""
    found: list[Revenue] = []
    for month in _span(services, first, last):
        by_currency: dict[str, Revenue] = {}
        for invoice in of_month(services, month.name):
            currency = invoice.currency
            by_currency.setdefault(currency, Revenue(month.name, currency)).add(invoice)
        found += [by_currency[currency] for currency in sorted(by_currency)]
    return [each.as_json() for each in found]


def as_csv(rows: list[dict[str, Any]]) -> str:
    """With a header, also where there are no rows."""
    text = io.StringIO()
    written = csv.DictWriter(text, fieldnames=list(Revenue("", "").as_json()))
    written.writeheader()
    written.writerows(rows)
    return text.getvalue()


def preview(services: Services, prices: Path, month: str | None) -> dict[str, Any]:
    """What a month would have cost at the last list of the file. Raises SettingsError."""
    old, new = services.settings.prices, revenue.throughout(_read(prices))
    if not old.is_on:
        raise SettingsError("nothing costs anything: money is off")
    if new.currency != old.currency:
        raise SettingsError(f"{prices}: its currency is {new.currency}, and not {old.currency}")
    chosen = _last(services) if month is None else named_month(month)
    found = list(_previews(services, old, new, chosen))
    sums = sum(one.old_cents for one in found), sum(one.new_cents for one in found)
    return {
        "month": chosen.name,
        "currency": old.currency,
        **_amounts(PricePreview("", *sums)),
        "items": [{"org_id": one.org_id, **_amounts(one)} for one in found],
    }


def _amounts(of: PricePreview) -> dict[str, int]:
    amounts = {"old_cents": of.old_cents, "new_cents": of.new_cents}
    return {**amounts, "difference_cents": of.difference_cents}


def _previews(
    services: Services, old: PriceBook, new: PriceBook, month: Month
) -> Iterator[PricePreview]:
    """By organization: none is held longer than it takes to rate it."""
    after = ""
    while True:
        with services.database.read() as db:
            org = invoice_runs.next_org(db, after)
            if org is None:
                return
            yield from revenue.previews(db, old, new, org.id, month)
        after = org.id


def _read(prices: Path) -> PriceBook:
    try:
        if prices.stat().st_size > PRICES_BYTES_MAX:
            raise SettingsError(f"{prices}: is longer than {PRICES_BYTES_MAX:,} bytes")
        return price_lists.read(prices.read_text(encoding="utf-8"))
    except OSError as error:
        raise SettingsError(f"{prices}: {error.strerror}") from None
    except UnicodeDecodeError:
        raise SettingsError(f"{prices}: is no text in UTF-8") from None
    except PriceListInvalid as error:
        raise SettingsError(f"{prices}: {error}") from None


def _last(services: Services) -> Month:
    """The month that ended last."""
    with services.database.read() as db:
        return month_of(month_of(services.database.now(db)).begin - timedelta(seconds=1))


def _span(services: Services, first: str | None, last: str | None) -> list[Month]:
    """The last twelve months that are over, unless others are named."""
    end = _last(services) if last is None else named_month(last)
    begin = month_of(end.begin - timedelta(days=334)) if first is None else named_month(first)
    if begin.begin > end.begin:
        raise SettingsError(f"--from {begin.name} must not be later than --to {end.name}")
    found = list(months(begin.begin, end.end))
    if len(found) > MONTHS_MAX:
        raise SettingsError(f"{begin.name} to {end.name} must be {MONTHS_MAX} months at most")
    return found
