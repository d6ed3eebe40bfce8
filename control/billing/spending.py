"""The spending cap: what a month comes to with all that is ordered, and whether it allows more.

Whoever asks holds the organization, as for its quotas: of orders that are placed at once, each is
held against those before it.
"""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Final

from sqlalchemy.orm import Session

from control.billing import charges
from control.billing.charges import Foreseen
from control.policy.months import Month, month_of
from control.policy.prices import MICRO_CENTS, PriceBook, amount, whole_cents
from control.policy.rating import MonthTally
from specserver import PaymentRequired
from storage.access.organizations import Organization
from storage.billing.whose import Whose
from storage.instances import allocations
from storage.instances.allocations import Planned
from storage.instances.spans import SpanSums

CODE: Final = "spending_cap_exceeded"
NEW: Final = "new"
"""In place of the id of an instance that is none yet."""


@dataclass(frozen=True)
class Committed:
    """Of one month, in micro-cents: spent so far, and at its end with all that is ordered."""

    month: Month
    spent: int
    total: int


@dataclass(frozen=True)
class Outlook:
    """What an organization has spent, and what it has ordered."""

    book: PriceBook
    now: datetime
    tally: MonthTally
    foreseen: Foreseen
    planned: dict[str, Planned]

    @classmethod
    def of(cls, db: Session, book: PriceBook, org_id: str, now: datetime) -> "Outlook":
        whose, month = Whose(org_id), month_of(now)
        tally = charges.tally(db, book, whose, month, now)
        planned = {each.instance_id: each for each in allocations.planned(db, org_id)}
        return cls(book, now, tally, Foreseen.of(db, whose, now), planned)

    def committed(self, *others: Planned) -> Committed:
        """With these as they are given, whatever is known of them."""
        wanted = self.planned | {each.instance_id: each for each in others}
        foreseen = replace(self.foreseen, spans=list(_spans(wanted.values())))
        total = charges.foretold(self.book, self.tally, foreseen, self.now).micro_cents
        return Committed(self.tally.month, self.tally.micro_cents, total)


def _spans(planned: Iterable[Planned]) -> Iterable[SpanSums]:
    for each in planned:
        yield SpanSums(each.instance_id, None, *each[1:], seconds=0, lasting=1)


def check(
    db: Session,
    book: PriceBook,
    org: Organization,
    now: datetime,
    *,
    becomes: Planned,
    was: Planned | None = None,
) -> None:
    """Raises PaymentRequired where the cap leaves no room for what an instance is to become.

    What makes nothing dearer than it `was` is allowed, however much is spent.
    """
    cap_cents = org.spending_cap_cents
    if cap_cents is None or not book.is_on:
        return
    outlook = Outlook.of(db, book, org.id, now)
    paused = becomes._replace(runs=False, size="f0", storage_bytes=0)
    before, after = outlook.committed(was or paused), outlook.committed(becomes)
    if after.total <= cap_cents * MICRO_CENTS or after.total <= before.total:
        return
    raise PaymentRequired(_told(before, after, cap_cents, book.currency), code=CODE)


def _told(before: Committed, after: Committed, cap_cents: int, currency: str) -> str:
    spent, ordered, more, total = (
        amount(whole_cents(each), currency)
        for each in (
            before.spent,
            before.total - before.spent,
            after.total - before.total,
            after.total,
        )
    )
    month = before.month.name
    return (
        f"by the end of {month} this would cost {more} more, which makes {total}: {spent} are"
        f" spent, and {ordered} are still to come for what is there; the spending cap is"
        f" {amount(cap_cents, currency)} a month: raise it (`PUT …/spending-cap`), or pause or"
        " delete an instance"
    )
