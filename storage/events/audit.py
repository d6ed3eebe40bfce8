"""The audit log: who did what to which, written in the transaction that did it.

Entries are numbered and chained after the commit (storage/events/audit_chain.py).
"""

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

from sqlalchemy import BigInteger, ColumnElement, ForeignKey, Index, Select, or_, select, text
from sqlalchemy.orm import Mapped, Session, mapped_column

from storage import identifiers, pages
from storage.columns import Json, Owned, Record, one_of
from storage.pages import Page
from storage.prepared import Insertion

ACTOR_KINDS: Final = ("user", "api_key", "service_account", "scim_token", "system", "anonymous")
_UNSEALED: Final = text("seq IS NULL")
_SEALED: Final = text("seq IS NOT NULL")


class AuditEntry(Owned, Record):
    __tablename__ = "audit"
    __table_args__ = (
        one_of("actor_kind", ACTOR_KINDS),
        Index(None, "org_id", "id"),
        Index(
            *("ix_audit_org_id_seq", "org_id", "seq"),
            unique=True,
            postgresql_where=_SEALED,
            sqlite_where=_SEALED,
        ),
        Index(
            *("ix_audit_unsealed", "org_id", "id"),
            postgresql_where=_UNSEALED,
            sqlite_where=_UNSEALED,
        ),
    )

    id: Mapped[str] = mapped_column(primary_key=True)
    org_id: Mapped[str | None] = mapped_column(ForeignKey("organizations.id"))
    action: Mapped[str]
    actor_kind: Mapped[str]
    actor_id: Mapped[str | None]
    target: Mapped[str | None]
    request_id: Mapped[str | None]
    ip: Mapped[str | None]
    detail: Mapped[dict[str, Any]] = mapped_column(Json, default=dict)
    seq: Mapped[int | None] = mapped_column(BigInteger)
    """Its number in the organization, without gaps; None until it is sealed."""
    hash: Mapped[str | None]


_ENTRIES: Final = Insertion(AuditEntry)


@dataclass(frozen=True)
class AuditFilter:
    """Which entries: those with all that is given, from one moment until before another."""

    since: datetime | None = None
    until: datetime | None = None
    action: str | None = None
    actor_id: str | None = None
    actor_kind: str | None = None
    target: str | None = None
    instance_id: str | None = None
    """About the instance, or about something of which the detail says that it is the instance's."""
    request_id: str | None = None

    def conditions(self) -> Iterator[ColumnElement[bool]]:
        for name in ("action", "actor_id", "actor_kind", "target", "request_id"):
            value = getattr(self, name)
            if value is not None:
                yield getattr(AuditEntry, name) == value
        if self.instance_id is not None:
            named = (AuditEntry.detail[name].as_string() for name in ("instance", "instance_id"))
            yield or_(*(each == self.instance_id for each in (AuditEntry.target, *named)))
        if self.since is not None:
            yield AuditEntry.created_at >= self.since
        if self.until is not None:
            yield AuditEntry.created_at < self.until


def append(
    db: Session,
    org_id: str | None,
    action: str,
    *,
    actor_kind: str,
    actor_id: str | None = None,
    target: str | None = None,
    request_id: str | None = None,
    ip: str | None = None,
    detail: dict[str, Any] | None = None,
) -> str:
    """Its id."""
    entry_id = identifiers.new("aud_")
    _ENTRIES.write(
        db,
        id=entry_id,
        org_id=org_id,
        action=action,
        actor_kind=actor_kind,
        actor_id=actor_id,
        target=target,
        request_id=request_id,
        ip=ip,
        detail=detail or {},
    )
    return entry_id


def page(
    db: Session, org_id: str, chosen: AuditFilter, *, limit: int, after: str | None
) -> Page[AuditEntry]:
    """The organization's, newest first."""
    rows = _chosen(select(AuditEntry), org_id, chosen)
    return pages.keyset(db, rows, AuditEntry.id, limit=limit, after=after)


def time_of(db: Session, org_id: str, chosen: AuditFilter, number: int) -> datetime | None:
    """Of the entry that so many are newer than; None where there are not so many."""
    rows = _chosen(select(AuditEntry.created_at), org_id, chosen)
    found: datetime | None = db.scalar(rows.order_by(AuditEntry.id.desc()).offset(number).limit(1))
    return found


def _chosen(rows: Select[Any], org_id: str, chosen: AuditFilter) -> Select[Any]:
    return rows.where(AuditEntry.org_id == org_id, *chosen.conditions())


def sealed_after(db: Session, org_id: str | None, seq: int, limit: int) -> list[AuditEntry]:
    """Those that follow the number, in their order; what is not sealed yet comes later."""
    rows = select(AuditEntry).where(AuditEntry.org_id == org_id, AuditEntry.seq > seq)
    return list(db.scalars(rows.order_by(AuditEntry.seq).limit(limit)))
