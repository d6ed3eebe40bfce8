"""Housekeeping: rows that no longer say anything are deleted."""

from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Final

from sqlalchemy.orm import Session

from control.sso import account_limits
from control.work import Operation, Schedule, queue, workflow
from storage import rate_windows, replays
from storage.access import account_tokens, api_keys, invites, passkeys, sessions
from storage.billing import payments
from storage.data import backups, migrations, restores
from storage.database import now
from storage.events import (
    alerts,
    audit_chain,
    audit_publications,
    egress,
    events,
    webhook_deliveries,
)
from storage.instances import approvals, changes, one_time_urls
from storage.roles import support_grants
from storage.sso import device_logins, made_accounts, saml_assertions, sign_ins

KEEP_FINISHED_WORK: Final = timedelta(days=1)
KEEP_ENDED_SESSIONS: Final = timedelta(days=30)
KEEP_ACCOUNT_TOKENS: Final = timedelta(days=30)
KEEP_KEYS_OF_JOBS: Final = timedelta(days=30)
"""After they expire."""
KEEP_IDLE_WINDOWS: Final = timedelta(minutes=20)
"""Longer than any window, so that what is forgotten counts in none; and no longer than needed."""

KEEP_EGRESS: Final = timedelta(days=1)
"""Reports that no SIEM delivery has sent by then."""
KEEP_PAYMENT_NOTICES: Final = timedelta(days=60)
"""Longer than a payment provider sends an event again."""
KEEP_REMOVED_BACKUPS: Final = timedelta(days=100)
"""The health of the last three months is told of them."""

REPLAYS_MAX: Final = 100_000
"""Responses that an organization or a user keeps for repeated requests, between two runs."""
_AT_ONCE: Final = 2_000
"""Rows that are deleted in one transaction: others wait to write."""
_BATCHES_MAX: Final = 50


@workflow("housekeeping", deadline_s=300)
def clean(op: Operation) -> None:
    """A few thousand rows a transaction, as others wait to write; what is left goes next time."""
    settings = op.services.settings
    _forget(op, replays.forget_expired, timedelta())
    _in_batches(op, lambda db: replays.forget_surplus(db, REPLAYS_MAX, _AT_ONCE))
    # Before the sessions that they name.
    _forget(op, device_logins.forget_expired, timedelta())
    _forget(op, sessions.forget_ended, KEEP_ENDED_SESSIONS)
    _forget(op, account_tokens.forget_old, KEEP_ACCOUNT_TOKENS)
    _forget(op, api_keys.forget_of_jobs, KEEP_KEYS_OF_JOBS)
    _forget(op, passkeys.forget_used_challenges, timedelta())
    _forget(op, sign_ins.forget_expired, timedelta())
    _forget(op, saml_assertions.forget_expired, timedelta())
    _forget(op, made_accounts.forget_old, account_limits.WITHIN)
    _forget(op, rate_windows.forget_idle, KEEP_IDLE_WINDOWS)
    _forget(op, one_time_urls.forget_expired, timedelta())
    _forget(op, queue.forget_finished, KEEP_FINISHED_WORK)
    _forget(op, audit_chain.forget_old, timedelta(days=settings.audit_kept_days))
    _forget(op, egress.forget_old, KEEP_EGRESS)
    _forget(op, payments.forget_notices, KEEP_PAYMENT_NOTICES)
    _forget(op, audit_publications.forget_old_heads, timedelta(days=settings.audit_kept_days))
    _forget(op, audit_publications.forget_old_records, timedelta(days=settings.audit_kept_days))
    _forget(op, invites.forget_old, timedelta(days=settings.audit_kept_days))
    _forget(op, approvals.forget_old, timedelta(days=settings.audit_kept_days))
    _forget(op, support_grants.forget_old, timedelta(days=settings.audit_kept_days))
    _forget(op, alerts.forget_old, timedelta(days=settings.audit_kept_days))
    _forget(op, changes.forget_old, timedelta(days=settings.audit_kept_days))
    _forget(op, migrations.forget_old, timedelta(days=settings.audit_kept_days))
    _forget(op, restores.forget_old, timedelta(days=settings.audit_kept_days))
    _forget(op, backups.forget_old, KEEP_REMOVED_BACKUPS)
    _forget(op, events.forget_old, timedelta(days=settings.events_kept_days))
    kept = timedelta(days=settings.webhook_deliveries_kept_days)
    _forget(op, webhook_deliveries.forget_old, kept)
    _in_batches(op, lambda db: webhook_deliveries.forget_orphans(db, _AT_ONCE))


def _forget(
    op: Operation, forget: Callable[[Session, datetime, int], int], kept: timedelta
) -> None:
    _in_batches(op, lambda db: forget(db, now(db) - kept, _AT_ONCE))


def _in_batches(op: Operation, forget: Callable[[Session], int]) -> None:
    for _ in range(_BATCHES_MAX):
        with op.database.write() as db:
            if forget(db) < _AT_ONCE:
                return


SCHEDULE: Final = Schedule("housekeeping", clean, every_s=300)
