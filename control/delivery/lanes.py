"""What a kind of receivers says of its lanes, and which of them are taken when several wait.

Whoever does not answer holds a place for as long as an attempt may take. So nobody shares the
places of those who answer: at most half of all are for receivers whose last attempt failed or took
long, and an organization takes a further place while it has fewer than are free.
"""

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Final, Protocol, TypeVar

import structlog
from sqlalchemy import ColumnElement
from sqlalchemy.orm import Session

from control.delivery.guarded import GuardedClient
from storage.database import Database
from storage.errors import StorageUnavailable
from storage.events.delivery_lanes import DeliveryLane, LaneHeld

LANES_MAX: Final = 100
"""Lanes that a deliverer has at once; each makes one attempt at a time."""
OF_ORG_MAX: Final = 20
PAUSE_FROM: Final = 10
PAUSE_MOST_S: Final = 60.0
SLOW_MS: Final = 2_000
_log = structlog.get_logger("delivery")
Taken = TypeVar("Taken")


class LaneTarget(Protocol):
    """One kind of receivers. `Batch` and `LaneResult` are its own business.

    `read` and `record` run in transactions of other threads, `send` on the event loop.
    """

    kind: str

    def has_more(self) -> ColumnElement[bool]:
        """Whether a lane has something to send; a condition on DeliveryLane."""

    def read(self, db: Session, lane: DeliveryLane) -> Any | None:
        """What is to be sent next. None: nothing is, and the lane says so (`has_more`)."""

    async def send(self, batch: Any, client: GuardedClient, until: float) -> Any:
        """Send it in its order, and begin nothing after `until` (of `time.monotonic`).

        What is not sent by then is read again.
        """

    def record(self, db: Session, lane: DeliveryLane, result: Any) -> None:
        """Write down what came of it, and move the lane's number."""


class Beside(Protocol):
    """What is sent out of its order, such as deliveries that are tried again.

    What is taken and never recorded is taken again later.
    """

    def take(self, database: Database, in_progress: Collection["TakenDelivery"]) -> "Turn":
        """What is to be sent now, beside what is under way in this process."""

    async def send(self, taken: Any, client: GuardedClient) -> "TakenDelivery":
        """What came of one of these."""

    def record(
        self, db: Session, lanes: Mapping[str, DeliveryLane], results: Sequence[Any]
    ) -> None:
        """Write that down; their lanes are locked. One that is not there was deleted."""


class TakenDelivery(Protocol):
    """What is under way beside the lanes: of which of them, and whose."""

    @property
    def lane_id(self) -> str: ...

    @property
    def org_id(self) -> str: ...


@dataclass(frozen=True)
class Turn:
    """What was taken, and in how many seconds there may be more; None: only once some is done."""

    taken: Sequence[TakenDelivery] = ()
    next_s: float | None = None


@dataclass
class LaneSlots:
    """Those of a deliverer, and who has them."""

    most: int = LANES_MAX

    def chosen(
        self, waiting: Iterable[tuple[str, str, bool]], held: Collection[LaneHeld]
    ) -> list[str]:
        """The ids of those that are taken next, of (id, organization, whether it is doubtful)."""
        counts = Counter(each.org_id for each in held)
        free = self.most - len(held)
        doubtful = self.free_for_doubtful(held)
        chosen = []
        for lane_id, org_id, is_doubtful in waiting:
            if counts[org_id] >= min(free, OF_ORG_MAX) or (is_doubtful and doubtful <= 0):
                continue
            chosen.append(lane_id)
            counts[org_id] += 1
            free -= 1
            doubtful -= is_doubtful
        return chosen

    def free_for_doubtful(self, held: Collection[LaneHeld]) -> int:
        return self.most // 2 - sum(each.is_doubtful for each in held)

    def busy(self, held: Collection[LaneHeld]) -> list[str]:
        """Organizations that take no further place now."""
        counts = Counter(each.org_id for each in held)
        most = min(self.most - len(held), OF_ORG_MAX)
        return sorted(org_id for org_id, count in counts.items() if count >= most)


def each_apart_if_one_fails(
    take: Callable[[Sequence[str]], list[Taken]],
    set_aside: Callable[[str], None],
    lane_ids: Sequence[str],
) -> list[Taken]:
    """What `take` gives for these lanes, in one transaction, or in one each where that fails.

    So a lane that cannot be read delays no other: it alone is set aside.
    """
    try:
        return take(lane_ids)
    except StorageUnavailable:
        raise
    except Exception:  # noqa: BLE001 -- whatever it is, it is of one of these lanes
        if len(lane_ids) == 1:
            _log.exception("a lane cannot be read", lane=lane_ids[0])
            set_aside(lane_ids[0])
            return []
    return [
        taken
        for lane_id in lane_ids
        for taken in each_apart_if_one_fails(take, set_aside, [lane_id])
    ]


def pause(lane: DeliveryLane) -> timedelta:
    """How long a lane rests whose attempts have failed so often; its events wait, and are kept."""
    over = lane.failures - PAUSE_FROM
    if over < 0:
        return timedelta()
    return timedelta(seconds=min(2.0 ** min(over, 10), PAUSE_MOST_S))
