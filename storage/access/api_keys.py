"""API keys: an organization's programs, known by the hash of their secret."""

from datetime import datetime

from sqlalchemy import (
    ColumnElement,
    ForeignKey,
    Index,
    and_,
    func,
    or_,
    select,
    update,
)
from sqlalchemy.orm import Mapped, Session, aliased, mapped_column

from storage import pages
from storage.columns import Json, Owned, Record
from storage.errors import RecordNotFound
from storage.lookups import by_key, delete_some
from storage.pages import Page


class ApiKey(Owned, Record):
    __tablename__ = "api_keys"
    __table_args__ = (Index(None, "service_account_id", "expires_at"),)

    id: Mapped[str] = mapped_column(primary_key=True)
    org_id: Mapped[str] = mapped_column(ForeignKey("organizations.id"), index=True)
    name: Mapped[str]
    role: Mapped[str]
    scopes: Mapped[list[str] | None] = mapped_column(Json)
    created_by: Mapped[str] = mapped_column(ForeignKey("users.id"))
    # The key ends with it. None: created in a session, which a leaked key has none of.
    created_by_key_id: Mapped[str | None] = mapped_column(index=True)
    service_account_id: Mapped[str | None]
    # By which it was given to a job for a token. Such keys are many, and each lasts an hour.
    workload_identity_id: Mapped[str | None] = mapped_column(index=True)
    prefix: Mapped[str]
    token_hash: Mapped[str] = mapped_column(unique=True)
    expires_at: Mapped[datetime | None]
    last_used_at: Mapped[datetime | None]
    revoked_at: Mapped[datetime | None]
    suspended_at: Mapped[datetime | None]
    suspended_reason: Mapped[str | None]

    def is_live(self, now: datetime) -> bool:
        """Neither revoked, suspended nor expired: the key opens the door."""
        usable = self.revoked_at is None and self.suspended_at is None
        return usable and (self.expires_at is None or self.expires_at > now)

    def suspend(self, reason: str, at: datetime) -> None:
        """Until a person unsuspends it; suspending twice keeps the first reason."""
        if self.suspended_at is None:
            self.suspended_at, self.suspended_reason = at, reason

    def revoke(self, at: datetime) -> None:
        """Revoking twice keeps the first moment."""
        self.revoked_at = self.revoked_at or at


def fetch(db: Session, org_id: str, key_id: str, *, lock: bool = False) -> ApiKey:
    """A key of that organization that is not revoked; `lock` holds it until the commit."""
    key = by_key(db, ApiKey, key_id, lock=lock)
    if key is None or key.org_id != org_id or key.revoked_at is not None:
        raise RecordNotFound("api key not found")
    return key


def page(db: Session, org_id: str, *, now: datetime, limit: int, after: str | None) -> Page[ApiKey]:
    """Keys that are neither revoked nor expired, newest first; suspended ones are listed."""
    rows = select(ApiKey).where(*_listed(org_id, now))
    return pages.keyset(db, rows, ApiKey.id, limit=limit, after=after)


def count(db: Session, org_id: str, *, now: datetime) -> int:
    """How many `page` lists in all, but for those of jobs."""
    rows = select(func.count()).select_from(ApiKey).where(*_listed(org_id, now))
    return db.scalars(rows.where(ApiKey.workload_identity_id.is_(None))).one()


def count_by_org(db: Session, now: datetime) -> dict[str, int]:
    """As `count`, of each organization that has some."""
    rows = select(ApiKey.org_id, func.count()).where(*_is_listed(now))
    rows = rows.where(ApiKey.workload_identity_id.is_(None)).group_by(ApiKey.org_id)
    return dict(db.execute(rows).tuples().all())


def suspended(db: Session) -> list[tuple[str, str]]:
    """Those of every organization that are not revoked: the organization's id and theirs."""
    rows = select(ApiKey.org_id, ApiKey.id).where(ApiKey.suspended_at.is_not(None))
    return [row.tuple() for row in db.execute(rows.where(ApiKey.revoked_at.is_(None)))]


def count_of_jobs(db: Session, org_id: str, service_account_id: str, *, now: datetime) -> int:
    """Those in force that jobs have of the service account."""
    rows = select(func.count()).select_from(ApiKey)
    rows = rows.where(
        ApiKey.org_id == org_id,
        ApiKey.service_account_id == service_account_id,
        ApiKey.workload_identity_id.is_not(None),
        ApiKey.expires_at > now,
        ApiKey.revoked_at.is_(None),
    )
    return db.scalars(rows).one()


def revoke_created_with(db: Session, key: ApiKey, at: datetime) -> int:
    """Revoke the keys created with it, and with those in turn; how many were in force.

    Found behind revoked ones too, which former versions revoked alone.
    """
    return _revoke(db, key.org_id, at, _descended(ApiKey.created_by_key_id == key.id))


def revoke_of_jobs(db: Session, org_id: str, workload_identity_id: str, at: datetime) -> int:
    """Revoke those that jobs have by it, and those created with them; how many were in force."""
    of_jobs = ApiKey.workload_identity_id == workload_identity_id
    return _revoke(db, org_id, at, _descended(of_jobs))


def revoke_all(db: Session, org_id: str, at: datetime) -> int:
    """Revoke every key of the organization; how many were in force."""
    return _revoke(db, org_id, at)


def is_stopped(db: Session, org_id: str, key_id: str) -> bool:
    """Whether there is such a key, and it was revoked or is suspended."""
    key = by_key(db, ApiKey, key_id)
    if key is None or key.org_id != org_id:
        return False
    return key.revoked_at is not None or key.suspended_at is not None


def revoke_of(db: Session, org_id: str, user_id: str, at: datetime) -> int:
    """Revoke the user's keys in the organization, and those created with them, as one by one.

    How many were in force.
    """
    own = ApiKey.org_id == org_id, ApiKey.created_by == user_id
    return _revoke(db, org_id, at, _descended(*own))


def _listed(org_id: str, now: datetime) -> tuple[ColumnElement[bool], ...]:
    return ApiKey.org_id == org_id, *_is_listed(now)


def _is_listed(now: datetime) -> tuple[ColumnElement[bool], ...]:
    return (
        ApiKey.revoked_at.is_(None),
        or_(ApiKey.expires_at.is_(None), ApiKey.expires_at > now),
    )


def _descended(*first: ColumnElement[bool]) -> ColumnElement[bool]:
    """Of the first keys, those created with them, and with those in turn."""
    found = select(ApiKey.id).where(*first).cte(recursive=True)
    child = aliased(ApiKey)
    found = found.union(select(child.id).join(found, child.created_by_key_id == found.c.id))
    return ApiKey.id.in_(select(found.c.id))


def forget_of_jobs(db: Session, before: datetime, limit: int) -> int:
    """Delete at most `limit` of those of jobs that expired before that moment; how many went.

    Not those that were revoked: what somebody did with them is judged by that.
    """
    ended = and_(
        ApiKey.workload_identity_id.is_not(None),
        ApiKey.expires_at < before,
        ApiKey.revoked_at.is_(None),
    )
    return delete_some(db, ApiKey, ended, limit)


def _revoke(db: Session, org_id: str, at: datetime, *which: ColumnElement[bool]) -> int:
    live = update(ApiKey).where(ApiKey.org_id == org_id, ApiKey.revoked_at.is_(None), *which)
    return len(db.execute(live.values(revoked_at=at).returning(ApiKey.id)).all())
