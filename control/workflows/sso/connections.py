"""SSO connections: what their providers publish is read again every day.

So a provider that changes its keys or addresses needs nobody here. One that does not respond, or
has become another, changes nothing: what was read last stays, and after a day without success the
organization is told. Its owners are told before the last certificate of SAML expires, too.
"""

from datetime import datetime
from typing import Final

import structlog
from sqlalchemy.orm import Session

from control.services import Services
from control.sso import provider_alerts, rereading
from control.sso.providers import ProvidersBusy, ProviderUnavailable
from control.sso.rereading import ProviderSource, Published
from control.work import Again, Operation, Schedule, enqueue, workflow
from storage.access import organizations
from storage.access.organizations import Organization
from storage.database import now
from storage.errors import RecordNotFound
from storage.events import audit
from storage.sso import connections
from storage.sso.connections import SsoConnection

TRIES: Final = 3
BEGUN_MAX: Final = 1_000
"""Connections whose daily turn begins in one turn of an hour."""
BUSY_AGAIN_S: Final = 10.0
_log = structlog.get_logger("sso")


@workflow("sso_connections.check", deadline_s=300)
def check_due(op: Operation) -> None:
    """Have those read again that were not for a day, each in its own lane."""
    op.step_in_transaction("start", _start)


@workflow("sso_connections.refresh", deadline_s=600, asks_strangers=True)
def refresh(op: Operation) -> None:
    source = _source(op)
    if source is None:
        return
    try:
        published = _read(op.services, source)
    except ProvidersBusy:
        raise Again(BUSY_AGAIN_S) from None
    except ProviderUnavailable as error:
        if op.attempts < TRIES:
            raise
        why = error.detail
        _log.warning("sso.provider_unread", connection=source.connection_id, why=why)
        op.step_in_transaction("failed", lambda db: _note_failure(db, source, why))
        return
    op.step_in_transaction("record", lambda db: _record(db, source, published))


def lane_of(connection_id: str) -> str:
    return f"sso_connection:{connection_id}"


def _start(db: Session) -> None:
    for each in connections.due(db, now(db), BEGUN_MAX):
        # Once a turn, whatever becomes of it.
        each.refresh_tried_at = now(db)
        args = {"org_id": each.org_id, "connection_id": each.id, "person": each.org_id}
        enqueue(db, refresh, lane_of(each.id), args)


def _source(op: Operation) -> ProviderSource | None:
    with op.database.read() as db:
        found = connections.find(db, op.args["org_id"], op.args["connection_id"])
        return None if found is None or not found.is_usable else rereading.source_of(found)


def _read(services: Services, source: ProviderSource) -> Published | None:
    with services.database.read() as db:
        at = now(db)
    return rereading.read(services, source, at)


def _note_failure(db: Session, source: ProviderSource, reason: str) -> None:
    held = _hold(db, source)
    if held is None:
        return
    org, connection, at = held
    connection.was_unread(reason, at)
    provider_alerts.look(db, org, connection, at)


def _record(db: Session, source: ProviderSource, published: Published | None) -> None:
    held = _hold(db, source)
    if held is None:
        return
    org, connection, at = held
    if published is not None:
        changed = rereading.changes(connection, published)
        connection.became_known(published.provider, published.keys, at)
        if changed:
            told = {"kind": connection.kind, "changed": changed}
            audit.append(
                db,
                org.id,
                "sso_connection.refresh",
                actor_kind="system",
                target=connection.id,
                detail=told,
            )
    provider_alerts.look(db, org, connection, at)


def _hold(
    db: Session, source: ProviderSource
) -> tuple[Organization, SsoConnection, datetime] | None:
    """None where somebody has removed, disabled or changed it meanwhile, which read it anew."""
    try:
        # First, as requests do, so that none waits for this one while it waits for them.
        organizations.lock(db, source.org_id)
        org = organizations.fetch(db, source.org_id)
        connection = connections.fetch(db, org.id, source.connection_id, lock=True)
    except RecordNotFound:
        return None
    if not connection.is_usable or rereading.source_of(connection) != source:
        return None
    return org, connection, now(db)


SCHEDULE: Final = Schedule("sso_connections", check_due, every_s=3_600)
