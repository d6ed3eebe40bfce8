"""Housekeeping: rows that no longer say anything are deleted."""

from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Final

from sqlalchemy.orm import Session

from control.work import Operation, Schedule, queue, workflow
from storage import rate_windows, replays
from storage.access import sessions
from storage.database import now
from storage.events import audit, events
from storage.instances import changes, one_time_urls

KEEP_FINISHED_WORK: Final = timedelta(days=1)
KEEP_ENDED_SESSIONS: Final = timedelta(days=30)
KEEP_IDLE_WINDOWS: Final = timedelta(minutes=20)
"""Longer than any window, so that what is forgotten counts in none; and no longer than needed."""

REPLAYS_MAX: Final = 100_000
"""Responses that an organization or a user keeps for repeated requests, between two runs."""
_AT_ONCE: Final = 2_000
_BATCHES_MAX: Final = 50


@workflow("housekeeping", deadline_s=300)
def clean(op: Operation) -> None:
    """Each in its own transaction, so that none waits long for another."""
    with op.database.write() as db:
        replays.forget_expired(db, now(db))
    with op.database.write() as db:
        replays.forget_surplus(db, REPLAYS_MAX)
    with op.database.write() as db:
        sessions.forget_ended(db, now(db) - KEEP_ENDED_SESSIONS)
    with op.database.write() as db:
        rate_windows.forget_idle(db, now(db) - KEEP_IDLE_WINDOWS)
    with op.database.write() as db:
        one_time_urls.forget_expired(db, now(db))
    with op.database.write() as db:
        queue.forget_finished(db, now(db) - KEEP_FINISHED_WORK)
    settings = op.services.settings
    _forget_old(op, audit.forget_old, settings.audit_kept_days)
    _forget_old(op, changes.forget_old, settings.audit_kept_days)
    _forget_old(op, events.forget_old, settings.events_kept_days)


def _forget_old(op: Operation, forget: Callable[[Session, datetime, int], int], days: int) -> None:
    """A few thousand rows a transaction, as others wait to write; what is left goes next time."""
    for _ in range(_BATCHES_MAX):
        with op.database.write() as db:
            if forget(db, now(db) - timedelta(days=days), _AT_ONCE) < _AT_ONCE:
                return


SCHEDULE: Final = Schedule("housekeeping", clean, every_s=300)
