"""Invites: who may join an organization, known by the hash of the token in their letter."""

from datetime import datetime

from sqlalchemy import ColumnElement, ForeignKey, Index, func, select
from sqlalchemy.orm import Mapped, Session, mapped_column

from storage import identifiers, pages, tenancy
from storage.access import organizations
from storage.columns import Owned, Record
from storage.errors import RecordNotFound
from storage.lookups import by_key, delete_oldest
from storage.pages import Page


class Invite(Owned, Record):
    __tablename__ = "invites"
    __table_args__ = (Index(None, "org_id", "id"),)

    id: Mapped[str] = mapped_column(primary_key=True)
    org_id: Mapped[str] = mapped_column(ForeignKey("organizations.id"))
    email: Mapped[str]
    role: Mapped[str]
    token_hash: Mapped[str] = mapped_column(unique=True)
    # The user or the API key; and the user whose key it is.
    invited_by: Mapped[str]
    inviter_id: Mapped[str] = mapped_column(ForeignKey("users.id"))
    expires_at: Mapped[datetime]
    accepted_at: Mapped[datetime | None]
    accepted_by: Mapped[str | None]
    revoked_at: Mapped[datetime | None]

    def status(self, now: datetime) -> str:
        """`pending`, `used`, `revoked` or `expired`."""
        if self.accepted_at is not None:
            return "used"
        if self.revoked_at is not None:
            return "revoked"
        return "pending" if self.expires_at > now else "expired"

    def accept(self, by: str, at: datetime) -> None:
        self.accepted_by, self.accepted_at = by, at

    def revoke(self, at: datetime) -> None:
        self.revoked_at = at


def create(
    db: Session,
    org_id: str,
    *,
    email: str,
    role: str,
    token_hash: str,
    invited_by: str,
    inviter_id: str,
    expires_at: datetime,
) -> Invite:
    made = Invite(
        id=identifiers.new("inv_"),
        org_id=org_id,
        email=email.lower(),
        role=role,
        token_hash=token_hash,
        invited_by=invited_by,
        inviter_id=inviter_id,
        expires_at=expires_at,
    )
    db.add(made)
    db.flush()
    return made


def fetch(db: Session, org_id: str, invite_id: str, now: datetime, *, lock: bool = False) -> Invite:
    """A pending one of that organization; `lock` holds it until the commit."""
    found = by_key(db, Invite, invite_id, lock=lock)
    if found is None or found.org_id != org_id or found.status(now) != "pending":
        raise RecordNotFound("invite not found")
    return found


def take(db: Session, token_hash: str) -> Invite:
    """The invite of that token, for a request without an organization, which goes on within its.

    The organization is locked first, so that what is counted of it stays true.
    """
    with tenancy.across(db, "the token alone tells which organization it is of"):
        org_id = db.scalar(select(Invite.org_id).where(Invite.token_hash == token_hash))
        if org_id is None:
            raise RecordNotFound("invite not found")
        organizations.lock(db, org_id)
    tenancy.restrict(db, org_id)
    rows = select(Invite).where(Invite.org_id == org_id, Invite.token_hash == token_hash)
    return db.scalars(rows.with_for_update()).one()


def page(db: Session, org_id: str, *, now: datetime, limit: int, after: str | None) -> Page[Invite]:
    """The pending ones, newest first."""
    rows = select(Invite).where(*_pending(org_id, now))
    return pages.keyset(db, rows, Invite.id, limit=limit, after=after)


def count_pending(db: Session, org_id: str, now: datetime, email: str | None = None) -> int:
    """All that are pending, or those to one address."""
    rows = select(func.count()).select_from(Invite).where(*_pending(org_id, now))
    if email is not None:
        rows = rows.where(Invite.email == email.lower())
    return db.scalars(rows).one()


def count_pending_by_org(db: Session, now: datetime) -> dict[str, int]:
    """Of each organization that has some."""
    rows = select(Invite.org_id, func.count()).where(*_is_pending(now)).group_by(Invite.org_id)
    return dict(db.execute(rows).tuples().all())


def count_since(db: Session, org_id: str, since: datetime, email: str | None = None) -> int:
    """Those sent since, to anybody or to one address, whatever became of them."""
    rows = select(func.count()).select_from(Invite)
    rows = rows.where(Invite.org_id == org_id, Invite.created_at >= since)
    if email is not None:
        rows = rows.where(Invite.email == email.lower())
    return db.scalars(rows).one()


def is_pending(db: Session, org_id: str, invite_id: str, now: datetime) -> bool:
    rows = select(Invite.id).where(*_pending(org_id, now), Invite.id == invite_id)
    return db.scalar(rows) is not None


def revoke_of(db: Session, org_id: str, user_id: str, at: datetime) -> int:
    """Revoke the pending ones that the user sent, or a key of theirs; how many there were."""
    rows = select(Invite).where(*_pending(org_id, at), Invite.inviter_id == user_id)
    found = list(db.scalars(rows.with_for_update()))
    for invite in found:
        invite.revoke(at)
    return len(found)


def forget_old(db: Session, before: datetime, limit: int) -> int:
    """Delete at most `limit` of those sent before that moment; how many went."""
    return delete_oldest(db, Invite.id, "inv_", before, limit)


def _pending(org_id: str, now: datetime) -> tuple[ColumnElement[bool], ...]:
    return Invite.org_id == org_id, *_is_pending(now)


def _is_pending(now: datetime) -> tuple[ColumnElement[bool], ...]:
    return (
        Invite.accepted_at.is_(None),
        Invite.revoked_at.is_(None),
        Invite.expires_at > now,
    )
