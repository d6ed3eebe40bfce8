"""The check of bills: every night, what was counted, metered and billed is compared."""

from collections.abc import Iterator, Mapping
from datetime import datetime, timedelta
from typing import Final

import structlog
from sqlalchemy.orm import Session

from control.billing import reconciling
from control.billing.reconciling import BillingDifference, Checking
from control.policy.months import HOUR, Month, hour_of, month_of
from control.policy.rating import BACKUPS, EGRESS
from control.services import Services
from control.work import Operation, Schedule, workflow
from control.workflows.billing.egress import HOURS_MAX
from control.workflows.catalogue.cells import left_to_the_next_turn
from storage.billing import billing_checks, hourly, invoice_runs, meters, recounts
from storage.billing.recounts import Metered
from storage.catalogue import cells
from storage.catalogue.cells import Cell
from storage.database import now

DIFFERENCE: Final = "billing difference"
"""The event of the log for each; an alert of the operator's can ask for it."""
_log = structlog.get_logger("billing")


class Checked:
    """Counts what was compared while differences are read."""

    def __init__(self) -> None:
        self.organizations = 0
        self.silent_cells: list[str] = []


@workflow("billing.check", deadline_s=6 * 3600)
def check(op: Operation) -> None:
    """Of this month and of the one before it. It only reads, so it can be begun anew."""
    if not op.services.settings.prices.is_on:
        return
    with op.database.read() as db:
        moment = now(db)
    this = month_of(moment)
    for month in (month_of(this.begin - timedelta(seconds=1)), this):
        checked, count = Checked(), 0
        for each in differences(op.services, month, checked):
            count += 1
            _log.error(DIFFERENCE, **each._asdict())
        with op.database.write() as db:
            billing_checks.note(
                db,
                month.name,
                checked_at=moment,
                organizations=checked.organizations,
                differences=count,
            )


def differences(services: Services, month: Month, checked: Checked) -> Iterator[BillingDifference]:
    """As they are found: first those of the last days, by the hour, then those of the month."""
    settings = services.settings
    checking = Checking(settings.prices, settings.issuer, month)
    with services.database.read() as db:
        moment, every_cell = now(db), cells.every(db)
        last = meters.last_metered(db)
    for hour in [] if last is None else _hours(month, moment, last + HOUR):
        with services.database.read() as db:
            yield from checking.of_hour(BACKUPS, *reconciling.recounted_backups(db, hour))
    for cell in every_cell:
        yield from _of_cell(services, checking, cell, moment, checked)
    after = ""
    while True:
        with services.database.read() as db:
            org = invoice_runs.next_org(db, after)
            if org is None:
                return
            found = list(checking.of_org(db, org, moment))
        after = org.id
        checked.organizations += 1
        yield from found


def _hours(month: Month, moment: datetime, end: datetime) -> Iterator[datetime]:
    """Those of the month that are before `end`, and of which a cell still knows."""
    hour = max(month.begin, hour_of(moment) - HOURS_MAX * HOUR)
    while hour < min(month.end, end):
        yield hour
        hour += HOUR


def _of_cell(
    services: Services, checking: Checking, cell: Cell, moment: datetime, checked: Checked
) -> Iterator[BillingDifference]:
    """The last hour that was metered is left out, as it can still grow."""
    if cell.egress_metered_hour is None:
        return
    heard = False
    with left_to_the_next_turn(cell):
        client = services.cells.for_cell(cell)
        for hour in _hours(checking.month, moment, cell.egress_metered_hour):
            told = {each["instance_id"]: each["bytes_out"] for each in client.sent_in(hour)}
            with services.database.read() as db:
                counted = _whose(db, cell.id, told)
                metered = recounts.of_hour(db, EGRESS, hour, cell_id=cell.id)
            yield from checking.of_hour(EGRESS, counted, metered)
        heard = True
    if not heard:
        checked.silent_cells.append(cell.id)


def _whose(db: Session, cell_id: str, told: Mapping[str, int]) -> dict[str, Metered]:
    """Of its own instances only, as it is metered."""
    ids, found = list(told), dict[str, Metered]()
    for first in range(0, len(ids), reconciling.AT_ONCE):
        known = hourly.owners(db, cell_id, ids[first : first + reconciling.AT_ONCE])
        found |= {one: Metered(owner.org_id, told[one]) for one, owner in known.items()}
    return found


SCHEDULE: Final = Schedule("billing_check", check, every_s=86_400)
