"""What the operator's command for the check of bills does, and how it tells it."""

from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Final

from control.policy.months import Month, month_of
from control.services import Services
from control.workflows.billing import checking
from control.workflows.billing.checking import Checked
from menagerie.errors import SettingsError
from menagerie.invoice_books import named_month

SHOWN_MAX: Final = 10_000
"""Differences that are listed; whoever has more has read enough."""


@dataclass(frozen=True)
class CheckReport:
    differences: list[dict[str, Any]]
    summary: str


def check(services: Services, month: str | None) -> CheckReport:
    """Raises SettingsError where nothing is metered, and for what is no month."""
    if not services.settings.prices.is_on:
        raise SettingsError("nothing is metered: money is off")
    found: list[dict[str, Any]] = []
    checked = Checked()
    chosen = _months(services) if month is None else [named_month(month)]
    for each in chosen:
        for difference in checking.differences(services, each, checked):
            if len(found) < SHOWN_MAX:
                found.append(difference._asdict())
    names = " and ".join(each.name for each in chosen)
    more = " or more" * (len(found) == SHOWN_MAX)
    told = f"{names}: organizations compared: {checked.organizations // len(chosen)},"
    told += f" differences: {len(found)}{more}"
    if checked.silent_cells:
        silent = ", ".join(sorted(set(checked.silent_cells)))
        told += f"; not compared, as they do not respond, are the cells {silent}"
    return CheckReport(found, told)


def _months(services: Services) -> list[Month]:
    with services.database.read() as db:
        this = month_of(services.database.now(db))
    return [month_of(this.begin - timedelta(seconds=1)), this]
