"""Spending caps: organizations are told of 50, 80 and 100 %, and paused where they chose that."""

from collections.abc import Collection
from typing import Any, Final

import structlog
from sqlalchemy.orm import Session

from control.billing import charges
from control.billing.charges import Charged
from control.events import publishing
from control.policy import budgets
from control.policy.alert_kinds import SPENDING
from control.policy.months import Month, month_of
from control.policy.prices import PriceBook, amount, whole_cents
from control.work import Operation, Schedule, workflow
from control.workflows.instances import lifecycle
from control.workflows.instances.fault_isolation import isolated
from control.workflows.instances.starting import start
from storage.access import organizations
from storage.access.organizations import Organization
from storage.billing import spending_notices
from storage.billing.whose import Whose
from storage.data import migrations
from storage.database import now
from storage.errors import StateConflict
from storage.events import audit
from storage.instances import instances
from storage.instances.instances import Instance

_AT_ONCE: Final = 200
_log = structlog.get_logger("spending_caps")


@workflow("spending_caps.watch", deadline_s=300)
def watch(op: Operation) -> None:
    """Looks without holding anything, and then again at each organization with something to do."""
    book = op.services.settings.prices
    after, there_are_more = "", book.is_on
    while there_are_more:
        with op.database.read() as db:
            found = spending_notices.capped(db, SPENDING, limit=_AT_ONCE, after=after)
            wanting = [each.org.id for each in found if _is_wanting(db, book, *each)]
        for org_id in wanting:
            with isolated(org_id):
                _act(op, book, org_id)
        there_are_more = len(found) == _AT_ONCE
        after = found[-1].org.id if found else after


def _is_wanting(db: Session, book: PriceBook, org: Organization, is_alerted: bool) -> bool:
    """Whether it is to be told something, its alert is over, or something of it is to pause."""
    month, reached = _reached(db, book, org)
    told = spending_notices.told(db, org.id, month.name)
    is_over = is_alerted and _is_over(told, reached)
    return is_over or not told.issuperset(reached) or bool(_to_pause(db, book, org, reached))


def _reached(db: Session, book: PriceBook, org: Organization) -> tuple[Month, tuple[int, ...]]:
    moment = now(db)
    month = month_of(moment)
    spent = charges.tally(db, book, Whose(org.id), month, moment).micro_cents
    return month, budgets.crossed(spent, org.spending_cap_cents)


def _act(op: Operation, book: PriceBook, org_id: str) -> None:
    """Whoever holds the organization acts; another worker finds that it was done."""
    with op.database.write() as db:
        organizations.lock(db, org_id)
        org = organizations.fetch(db, org_id)
        month, reached = _reached(db, book, org)
        _tell(db, book, org, month, reached)
        stopping = _to_pause(db, book, org, reached)
    for instance_id in stopping:
        with isolated(instance_id), op.database.write() as db:
            _pause(db, org_id, instance_id)


def _tell(
    db: Session, book: PriceBook, org: Organization, month: Month, reached: tuple[int, ...]
) -> None:
    told = spending_notices.told(db, org.id, month.name)
    if _is_over(told, reached):
        publishing.resolve(db, org, [SPENDING])
    if told.issuperset(reached):
        return
    charged = charges.charged(db, book, Whose(org.id), month, now(db))
    for percent in reached:
        if percent not in told:
            spending_notices.note(db, org.id, month.name, percent)
            data = _described(org, book.currency, month, charged, percent)
            publishing.publish(db, org.id, "spending_cap.threshold.v1", data)


def _is_over(told: Collection[int], reached: Collection[int]) -> bool:
    """What an alert says: it is of last month, or the cap was raised or taken away since."""
    return not told or max(told) not in reached


def _described(
    org: Organization, currency: str, month: Month, charged: Charged, percent: int
) -> dict[str, Any]:
    spent, cap_cents = charged.spend, org.spending_cap_cents or 0
    so_far = whole_cents(spent.month_to_date)
    told = amount(so_far, currency), amount(cap_cents, currency)
    stops = percent == budgets.THRESHOLDS[-1] and org.spending_cap_on_reach == "pause"
    effect = "; instances that cost something to run are being paused" if stops else ""
    return {
        "month": month.name,
        "threshold_percent": percent,
        "currency": currency,
        "month_to_date_cents": so_far,
        "forecast_cents": whole_cents(spent.forecast),
        "monthly_amount_cents": cap_cents,
        "on_reach": org.spending_cap_on_reach,
        "reason": f"{told[0]} of {told[1]} are spent in {month.name}{effect}",
    }


def _to_pause(
    db: Session, book: PriceBook, org: Organization, reached: Collection[int]
) -> list[str]:
    """Running instances, once all of the cap is spent; what costs nothing to run goes on."""
    if org.spending_cap_on_reach != "pause" or budgets.THRESHOLDS[-1] not in reached:
        return []
    prices, running = book.at(now(db)), instances.in_statuses(db, org.id, ["running"])
    return [each.id for each in running if prices.in_region(each.region).sizes[each.size]]


def _pause(db: Session, org_id: str, instance_id: str) -> None:
    instance = instances.fetch(db, org_id, instance_id, lock=True)
    try:
        migrations.check_none(db, instance, "pause")
        instance.pause()
    except StateConflict as conflict:
        # A change or a migration is under way: it is paused in a later turn.
        _log.info("not paused yet", instance_id=instance_id, reason=str(conflict))
        return
    _audit(db, instance)
    start(db, lifecycle.pause, instance)


def _audit(db: Session, instance: Instance) -> None:
    audit.append(
        db,
        instance.org_id,
        "instance.pause",
        actor_kind="system",
        target=instance.id,
        detail={"name": instance.name, "reason": "spending_cap"},
    )


SCHEDULE: Final = Schedule("spending_caps", watch, every_s=60)
