"""Approvals: orders of instances that wait for somebody's decision, and what became of each."""

from datetime import datetime
from typing import Any, Final

from sqlalchemy import (
    BigInteger,
    ColumnElement,
    ForeignKey,
    Index,
    Select,
    and_,
    bindparam,
    func,
    or_,
    select,
    text,
)
from sqlalchemy.orm import Mapped, Session, mapped_column

from storage import identifiers, pages
from storage.access.scopes import RecordPlace
from storage.columns import Json, Owned, Record, one_of
from storage.errors import RecordNotFound, StateConflict
from storage.lookups import by_key, delete_oldest
from storage.pages import Page

STATUSES: Final = ("pending", "approved", "denied", "expired")
_PENDING: Final = text("status = 'pending'")


class Approval(Owned, Record):
    """Of its project and team it keeps the ids alone: it outlives both."""

    __tablename__ = "approvals"
    __table_args__ = (
        one_of("status", STATUSES),
        Index(None, "org_id", "id"),
        Index(
            "ix_approvals_pending",
            "expires_at",
            postgresql_where=_PENDING,
            sqlite_where=_PENDING,
        ),
    )

    id: Mapped[str] = mapped_column(primary_key=True)
    org_id: Mapped[str] = mapped_column(ForeignKey("organizations.id"))
    team_id: Mapped[str]
    project_id: Mapped[str]
    # The user or the API key; and the user whose key it is.
    requested_by: Mapped[str]
    requester_id: Mapped[str] = mapped_column(ForeignKey("users.id"))
    # As it was sent, and what it came to when it was.
    order: Mapped[dict[str, Any]] = mapped_column("ordered", Json)
    reasons: Mapped[list[dict[str, str]]] = mapped_column(Json)
    cost_cents: Mapped[int] = mapped_column(BigInteger)
    status: Mapped[str] = mapped_column(default="pending")
    expires_at: Mapped[datetime]
    decided_at: Mapped[datetime | None]
    decided_by: Mapped[str | None]
    decision_reason: Mapped[str | None]
    instance_id: Mapped[str | None]

    @property
    def place(self) -> RecordPlace:
        return RecordPlace(self.team_id, self.project_id)

    def status_at(self, now: datetime) -> str:
        """What it is at that moment, before anybody has marked it as expired."""
        return "expired" if self.status == "pending" and self.expires_at <= now else self.status

    def check_pending(self, now: datetime) -> None:
        status = self.status_at(now)
        if status == "expired":
            raise StateConflict("this order was not decided in time and has expired: order again")
        if status != "pending":
            raise StateConflict(f"this order is {status} already")

    def approve(self, by: str, at: datetime, reason: str | None, instance_id: str) -> None:
        """The instance was ordered with the same transaction."""
        self._decide("approved", by, at, reason)
        self.instance_id = instance_id

    def deny(self, by: str, at: datetime, reason: str) -> None:
        self._decide("denied", by, at, reason)

    def _decide(self, status: str, by: str, at: datetime, reason: str | None) -> None:
        self.check_pending(at)
        self.status = status
        self.decided_by, self.decided_at, self.decision_reason = by, at, reason

    def expire(self, now: datetime) -> bool:
        """Mark it as what it is already; whether it had to be."""
        if self.status != "pending" or self.expires_at > now:
            return False
        self.status = "expired"
        return True


# As a literal, without which a partial index is of no use.
_WAITING: Final = Approval.status == bindparam(None, "pending", literal_execute=True)


def request(db: Session, org_id: str, values: dict[str, Any]) -> Approval:
    made = Approval(id=identifiers.new("apr_"), org_id=org_id, **values)
    db.add(made)
    db.flush()
    return made


def fetch(db: Session, org_id: str, approval_id: str, *, lock: bool = False) -> Approval:
    """One of that organization; `lock` holds it until the commit."""
    found = by_key(db, Approval, approval_id, lock=lock)
    if found is None or found.org_id != org_id:
        raise RecordNotFound("approval not found")
    return found


def page(
    db: Session,
    org_id: str,
    *,
    now: datetime,
    status: str,
    teams: frozenset[str] | None,
    requester_id: str,
    mine: bool,
    team_id: str | None,
    limit: int,
    after: str | None,
) -> Page[Approval]:
    """Those of these teams and of the requester, or the requester's alone; newest first.

    `status` is what they are now, or `all`.
    """
    rows = select(Approval).where(Approval.org_id == org_id)
    own = Approval.requester_id == requester_id
    if mine:
        rows = rows.where(own)
    elif teams is not None:
        rows = rows.where(or_(own, Approval.team_id.in_(teams)))
    if team_id is not None:
        rows = rows.where(Approval.team_id == team_id)
    if status != "all":
        rows = rows.where(_is(status, now))
    return pages.keyset(db, rows, Approval.id, limit=limit, after=after)


def count_pending(
    db: Session, org_id: str, now: datetime, *, requester_id: str | None = None
) -> int:
    """All that wait, or those of one person."""
    rows = select(func.count()).select_from(Approval)
    rows = rows.where(Approval.org_id == org_id, _is("pending", now))
    if requester_id is not None:
        rows = rows.where(Approval.requester_id == requester_id)
    return db.scalars(rows).one()


def is_pending(db: Session, org_id: str, approval_id: str, now: datetime) -> bool:
    rows = select(Approval.id).where(Approval.org_id == org_id, Approval.id == approval_id)
    return db.scalar(rows.where(_is("pending", now))) is not None


def expired(db: Session, now: datetime, limit: int) -> list[tuple[str, str]]:
    """The organizations and ids of those that are to be marked, of every organization."""
    rows: Select[*tuple[str, str]] = select(Approval.org_id, Approval.id)
    rows = rows.where(_WAITING, Approval.expires_at <= now)
    found = db.execute(rows.order_by(Approval.expires_at).limit(limit)).tuples()
    return list(found)


def forget_old(db: Session, before: datetime, limit: int) -> int:
    """Delete at most `limit` of those asked for before that moment; how many went."""
    return delete_oldest(db, Approval.id, "apr_", before, limit)


def _is(status: str, now: datetime) -> ColumnElement[bool]:
    if status == "pending":
        return and_(_WAITING, Approval.expires_at > now)
    if status == "expired":
        return or_(Approval.status == "expired", and_(_WAITING, Approval.expires_at <= now))
    return Approval.status == status
