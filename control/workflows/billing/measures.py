"""What the last checks of bills found."""

from typing import Final

from sqlalchemy.orm import Session

from control.monitoring.measures import Figures, Measure
from storage.billing import billing_checks

SHOWN_MONTHS: Final = 2


def _differences(db: Session) -> Figures:
    found = billing_checks.newest(db, SHOWN_MONTHS)
    return [((each.month,), each.differences) for each in found]


def _checked_at(db: Session) -> Figures:
    found = billing_checks.newest(db, SHOWN_MONTHS)
    return [((), max(each.checked_at for each in found).timestamp())] if found else []


DIFFERENCES: Final = Measure(
    "menagerie_billing_differences",
    "Differences between what was counted, metered and billed in a month, when last checked.",
    ("month",),
    _differences,
)
CHECKED_AT: Final = Measure(
    "menagerie_billing_checked_timestamp_seconds",
    "When bills were last checked, in Unix time.",
    (),
    _checked_at,
)
