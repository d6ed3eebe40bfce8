"""What a slow, plain model of spans and meters knows of instances and of prices."""

from datetime import UTC, datetime
from typing import Final, NamedTuple

from contract_tests.storage.instances.changing_prices import BOOK
from control.billing import revenue
from control.policy.prices import PriceBook
from control.policy.rating import Charge, LineKey, MonthTally
from storage.instances.instances import Instance

PREVIEWED: Final = revenue.throughout(BOOK)


class Kind(NamedTuple):
    """What is paid for of an instance, while it is so."""

    team_id: str | None
    size: str
    storage_bytes: int
    runs: bool


class Piece(NamedTuple):
    """What the model says of one instance from one moment to another."""

    instance_id: str
    kind: Kind
    since: datetime
    until: datetime


class Late(NamedTuple):
    """A correction of a month that is closed, which counts in that of `counts_at`."""

    subject_id: str
    meter: str
    hour: datetime
    team_id: str | None
    quantity: int
    counts_at: datetime


class Now(NamedTuple):
    kind: Kind | None
    since: datetime


def kind_of(instance: Instance) -> Kind | None:
    """None: nothing is paid for it, and it is not even counted."""
    if instance.ready_at is None or instance.desired_status in {"deleted", "erased"}:
        return None
    runs = instance.status in {"running", "resizing"}
    return Kind(instance.team_id, instance.size, instance.storage_bytes, runs)


def parts(
    since: datetime, until: datetime, book: PriceBook = BOOK
) -> list[tuple[datetime, datetime, int]]:
    """Of a time, where each list of prices holds, by its place among them."""
    cuts = [datetime(1970, 1, 1, tzinfo=UTC), *(each.since for each in book.lists[1:])]
    ends = [*cuts[1:], datetime(9000, 1, 1, tzinfo=UTC)]
    found = []
    for number, (begin, end) in enumerate(zip(cuts, ends, strict=True)):
        if max(begin, since) < min(end, until):
            found.append((max(begin, since), min(end, until), number))
    return found


def used(tally: MonthTally) -> dict[LineKey, Charge]:
    """But for what was something for no time at all."""
    return {key: charge for key, charge in tally.lines.items() if charge.quantity}


def second(moment: datetime) -> datetime:
    return moment.replace(microsecond=0)
