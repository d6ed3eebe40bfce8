"""What a request left in the database, for tests to look at."""

from sqlalchemy import select
from sqlalchemy.orm import Session

from storage.access.api_keys import ApiKey
from storage.events.audit import AuditEntry
from storage.events.events import Event


def audited(db: Session, org_id: str) -> list[AuditEntry]:
    """The audit of an organization, newest first."""
    rows = select(AuditEntry).where(AuditEntry.org_id == org_id)
    return list(db.scalars(rows.order_by(AuditEntry.id.desc())))


def events_of(db: Session, org_id: str) -> list[Event]:
    """In the order in which they were told."""
    return list(db.scalars(select(Event).where(Event.org_id == org_id).order_by(Event.id)))


def key_with(db: Session, token_hash: str) -> ApiKey:
    return db.scalars(select(ApiKey).where(ApiKey.token_hash == token_hash)).one()
