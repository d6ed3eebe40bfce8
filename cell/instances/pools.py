"""What all instances of the cell share, and how much one tenant and one person have at most."""

import os

from cell.instances.data_streams import DataStreams
from cell.instances.log_followers import LogFollowers
from cell.instances.records import InstanceRecord
from specserver.turns import Together, Turns

FOLLOWED_LOGS = 20
EVERY_FOLLOWED_LOG = 400
RUNS = 24
# A download holds 16 MiB for as long as its client reads.
DATA_STREAMS = 12
DATA_STREAMS_OF_ONE = 2
# Of the copies that go on without a place; an upgrade takes more of the machine.
COPIES = 32
UPGRADES = 16
# Each runs tools beside its engine, for hours.
MIGRATIONS = 8
# Each has an object of 16 MiB in memory, twice while it is read back.
SECOND_STORE = 2
# Of what is held for as long as somebody likes, so much is kept for whoever has none of it.
RESERVED = 1 / 3
_PATIENT = 10_000


class CopyLimits:
    """For the first seconds of a copy, and for all of its time; see `copy_slots`."""

    def __init__(self, in_progress: int) -> None:
        self.beginning = Turns(4, 2, waiting_of_one=_PATIENT, waiting=_PATIENT)
        self.in_progress = Turns(
            *(in_progress, 2),
            reserved=int(in_progress * RESERVED),
            waiting_of_one=_PATIENT,
            waiting=_PATIENT,
        )


class Pools:
    """Each is dealt out as `Turns` deals: a tenant that has little of it goes before one with much.

    An engine that starts, or a snapshot that is made, waits for its turn; a statement of the
    console is refused, as a person is waiting, and so is a dump or a download, which would take the
    places of copies for as long as its client reads slowly; of the logs that a tenant follows the
    oldest ends.
    All but starts count by person as well, since one person may have several organizations.
    """

    def __init__(self) -> None:
        self.starts = Turns(16, 4, waiting_of_one=_PATIENT, waiting=_PATIENT)
        # One that is slow has a CPU in its place, so that half of them is left to others.
        slow = max(1, len(os.sched_getaffinity(0)) // 2)
        self.slow_starts = Turns(slow, 1, waiting_of_one=_PATIENT, waiting=_PATIENT)
        self.copies = CopyLimits(COPIES)
        # An upgrade may take as long as half an hour, a copy of the data minutes.
        self.upgrades = CopyLimits(UPGRADES)
        # Of files that are to become data. They take no places of copies: what is in a file may
        # keep its engine busy for as long as it likes.
        self.trials = CopyLimits(MIGRATIONS)
        self.migrations = Turns(
            *(MIGRATIONS, 2),
            reserved=int(MIGRATIONS * RESERVED),
            waiting_of_one=_PATIENT,
            waiting=_PATIENT,
        )
        # Of one object each, for some seconds: so nobody's copies wait for all of another's.
        self.second_store = Turns(SECOND_STORE, 1, waiting_of_one=_PATIENT, waiting=_PATIENT)
        self.runs = Turns(RUNS, 6, reserved=int(RUNS * RESERVED))
        self.followed_logs = LogFollowers(
            EVERY_FOLLOWED_LOG, FOLLOWED_LOGS, int(EVERY_FOLLOWED_LOG * RESERVED)
        )
        self.data_streams = DataStreams(DATA_STREAMS, DATA_STREAMS_OF_ONE, DATA_STREAMS // 3)


def owner_of(record: InstanceRecord) -> Together:
    """Of whose share a place is that work on an instance takes."""
    return share_of(record.tenant, record.spec.person)


def share_of(tenant: str, person: str) -> Together:
    """Of whose share a place is; nobody knows the person of what an older version began."""
    return Together((f"tenant {tenant}", f"person {person}") if person else (f"tenant {tenant}",))
