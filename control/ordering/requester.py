"""Who orders an instance, and under which terms."""

from dataclasses import dataclass
from datetime import datetime

from sqlalchemy.orm import Session

from control.policy.placement import Overcommit
from control.policy.prices import PriceBook
from storage.access.organizations import Organization


@dataclass(frozen=True)
class Requester:
    """For whom something is ordered, and in which transaction. `requested_by` is recorded.

    `now` is the database's clock.
    """

    db: Session
    org: Organization
    requested_by: str
    overcommit: Overcommit
    now: datetime
    prices: PriceBook
