"""Housekeeping: rows that no longer say anything are deleted."""

from datetime import timedelta
from typing import Final

from control.work import Operation, Schedule, queue, workflow
from storage import one_time_urls, rate_windows, replays, sessions
from storage.database import now

KEEP_FINISHED_WORK: Final = timedelta(days=1)
KEEP_ENDED_SESSIONS: Final = timedelta(days=30)
KEEP_IDLE_WINDOWS: Final = timedelta(minutes=20)
"""Longer than any window, so that what is forgotten counts in none; and no longer than needed."""


@workflow("housekeeping", deadline_s=300)
def clean(op: Operation) -> None:
    """Each in its own transaction, so that none waits long for another."""
    with op.database.write() as db:
        replays.forget_expired(db, now(db))
    with op.database.write() as db:
        sessions.forget_ended(db, now(db) - KEEP_ENDED_SESSIONS)
    with op.database.write() as db:
        rate_windows.forget_idle(db, now(db) - KEEP_IDLE_WINDOWS)
    with op.database.write() as db:
        one_time_urls.forget_expired(db, now(db))
    with op.database.write() as db:
        queue.forget_finished(db, now(db) - KEEP_FINISHED_WORK)


SCHEDULE: Final = Schedule("housekeeping", clean, every_s=300)
