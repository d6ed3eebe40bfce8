"""Who pays for what: a month is split between an organization and the parents that paid for it.

Between any two moments a month costs by how much it has grown, to the micro-cent, so the parts are
the whole, however it is cut.
"""

from collections import defaultdict
from collections.abc import Sequence
from datetime import datetime

from sqlalchemy.orm import Session

from control.billing import charges
from control.policy.months import Month
from control.policy.prices import PriceBook
from control.policy.rating import Charge, MonthTally
from storage.billing import payers
from storage.billing.whose import Whose

Metrics = dict[str, Charge]
_NOTHING = Charge(0, 0)


def parts(
    db: Session, book: PriceBook, org_id: str, month: Month, until: datetime
) -> dict[str, Metrics]:
    """What the organization is to pay for, by whose it is and by metric; its own comes first."""
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
) -> dict[bool, Metrics]:
    """What of the month is within the spans, and what is not."""
    tally = MonthTally(month)
    found: dict[bool, Metrics] = {True: {}, False: {}}
    whose, at = Whose(org_id=org_id), month.begin
    for begin, end in [*spans, (until, until)]:
        for is_within, to in ((False, begin), (True, end)):
            for since, before, prices in book.cut(at, to):
                added = tally.add(prices, charges.sums(db, whose, since, before))
                for key, charge in added.items():
                    so_far = found[is_within].get(key.metric, _NOTHING)
                    found[is_within][key.metric] = Charge(
                        so_far.quantity + charge.quantity, so_far.micro_cents + charge.micro_cents
                    )
            at = max(at, to)
    return found
