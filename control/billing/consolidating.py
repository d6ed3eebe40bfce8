"""Who pays for what: a month is split between an organization and the parents that paid for it.

Between any two moments a month costs by how much it has grown, to the micro-cent, so the parts are
the whole, however it is cut.
"""

from collections import defaultdict
from collections.abc import Sequence
from datetime import datetime
from typing import NamedTuple

from sqlalchemy.orm import Session

from control.billing import charges
from control.policy.months import Month
from control.policy.prices import PriceBook
from control.policy.rating import Charge, MonthTally
from storage.billing import late_corrections, payers
from storage.billing.late_corrections import LateCorrection
from storage.billing.whose import Whose

_NOTHING = Charge(0, 0)


class PaidPart(NamedTuple):
    """What was used, by metric; `corrections` of hours of months that are billed are part of it."""

    used: dict[str, Charge]
    corrections: list[LateCorrection]


def parts(
    db: Session, book: PriceBook, org_id: str, month: Month, until: datetime
) -> dict[str, PaidPart]:
    """What the organization is to pay for, by whose it is; its own comes first."""
    paid_by_others = payers.of_org(db, org_id, month.begin, until)
    own = _cut(db, book, org_id, month, until, [(one.since, one.until) for one in paid_by_others])
    spans: dict[str, list[tuple[datetime, datetime]]] = defaultdict(list)
    for part in payers.of_payer(db, org_id, month.begin, until):
        spans[part.org_id].append((part.since, part.until))
    found = {org_id: own[False]}
    for other_id, times in spans.items():
        found[other_id] = _cut(db, book, other_id, month, until, times)[True]
    return found


def _cut(
    db: Session,
    book: PriceBook,
    org_id: str,
    month: Month,
    until: datetime,
    spans: Sequence[tuple[datetime, datetime]],
) -> dict[bool, PaidPart]:
    """What of the month is within the spans, and what is not."""
    tally = MonthTally(month)
    found = {is_within: PaidPart({}, []) for is_within in (True, False)}
    whose, at = Whose(org_id=org_id), month.begin
    for begin, end in [*spans, (until, until)]:
        for is_within, to in ((False, begin), (True, end)):
            for since, before, prices in book.cut(at, to):
                added = tally.add(prices, charges.sums(db, whose, since, before))
                for key, charge in added.items():
                    so_far = found[is_within].used.get(key.metric, _NOTHING)
                    found[is_within].used[key.metric] = Charge(
                        so_far.quantity + charge.quantity, so_far.micro_cents + charge.micro_cents
                    )
            at = max(at, to)
    for one in late_corrections.of_bill(db, org_id, since=month.begin, until=until):
        is_within = any(begin <= one.counts_at < end for begin, end in spans)
        found[is_within].corrections.append(one)
    return found
