"""Workload identities: whose jobs may sign in as a service account, by an issuer's token."""

from collections.abc import Iterable
from datetime import datetime

from sqlalchemy import (
    ColumnElement,
    ForeignKey,
    Index,
    UniqueConstraint,
    delete,
    exists,
    func,
    or_,
    select,
)
from sqlalchemy.orm import Mapped, Session, mapped_column

from storage import identifiers, pages, tenancy
from storage.access import organizations
from storage.access.api_keys import ApiKey
from storage.columns import Owned, Record
from storage.errors import RecordNotFound
from storage.lookups import by_key
from storage.pages import Page
from storage.roles.service_accounts import ServiceAccount


class WorkloadIdentity(Owned, Record):
    """Tokens of `issuer` for `audience` are trusted whose subject is as `subject` says."""

    __tablename__ = "workload_identities"
    __table_args__ = (
        UniqueConstraint(
            *("service_account_id", "issuer", "audience", "subject"),
            name="uq_workload_identities_trust",
        ),
        Index(None, "issuer"),
    )

    id: Mapped[str] = mapped_column(primary_key=True)
    org_id: Mapped[str] = mapped_column(ForeignKey("organizations.id"))
    service_account_id: Mapped[str] = mapped_column(ForeignKey("service_accounts.id"))
    name: Mapped[str]
    issuer: Mapped[str]
    audience: Mapped[str]
    subject: Mapped[str]
    created_by: Mapped[str]
    # It is good as long as that key. None: created in a session.
    created_by_key_id: Mapped[str | None]


def create(
    db: Session,
    account: ServiceAccount,
    *,
    name: str,
    issuer: str,
    audience: str,
    subject: str,
    created_by: str,
    created_by_key_id: str | None = None,
) -> WorkloadIdentity:
    made = WorkloadIdentity(
        id=identifiers.new("wid_"),
        org_id=account.org_id,
        service_account_id=account.id,
        name=name,
        issuer=issuer,
        audience=audience,
        subject=subject,
        created_by=created_by,
        created_by_key_id=created_by_key_id,
    )
    db.add(made)
    db.flush()
    return made


def fetch(
    db: Session, account: ServiceAccount, identity_id: str, *, lock: bool = False
) -> WorkloadIdentity:
    """One of the account; `lock` holds its row until the transaction ends."""
    found = by_key(db, WorkloadIdentity, identity_id, lock=lock)
    if found is None or found.service_account_id != account.id:
        raise RecordNotFound("workload identity not found")
    return found


def page(
    db: Session, account: ServiceAccount, *, limit: int, after: str | None
) -> Page[WorkloadIdentity]:
    """Those of the account, newest first."""
    rows = select(WorkloadIdentity).where(WorkloadIdentity.service_account_id == account.id)
    return pages.keyset(db, rows, WorkloadIdentity.id, limit=limit, after=after)


def count(db: Session, account: ServiceAccount) -> int:
    rows = select(func.count()).select_from(WorkloadIdentity)
    return db.scalars(rows.where(WorkloadIdentity.service_account_id == account.id)).one()


def usable(
    db: Session, account: ServiceAccount, issuer: str, audience: str, now: datetime
) -> list[WorkloadIdentity]:
    """Those of the account that trust such tokens now, of whatever subject, oldest first."""
    rows = (
        select(WorkloadIdentity)
        .where(
            WorkloadIdentity.service_account_id == account.id,
            WorkloadIdentity.issuer == issuer,
            WorkloadIdentity.audience == audience,
            or_(WorkloadIdentity.created_by_key_id.is_(None), _maker_is_live(now)),
        )
        .order_by(WorkloadIdentity.id)
    )
    return list(db.scalars(rows))


def ended(db: Session, identities: Iterable[WorkloadIdentity], now: datetime) -> set[str]:
    """The ids of those that were created with a key that is good no more."""
    ids = [each.id for each in identities if each.created_by_key_id is not None]
    rows = select(WorkloadIdentity.id).where(WorkloadIdentity.id.in_(ids), ~_maker_is_live(now))
    return set(db.scalars(rows)) if ids else set()


def key(
    account: ServiceAccount,
    trust: WorkloadIdentity,
    *,
    name: str,
    scopes: list[str] | None,
    prefix: str,
    token_hash: str,
    expires_at: datetime,
) -> ApiKey:
    """A new one that a job has of the account, which ends with what made its trust."""
    return ApiKey(
        id=identifiers.new("key_"),
        org_id=account.org_id,
        name=name,
        role=account.role,
        scopes=scopes,
        created_by=account.id,
        created_by_key_id=trust.created_by_key_id,
        service_account_id=account.id,
        workload_identity_id=trust.id,
        prefix=prefix,
        token_hash=token_hash,
        expires_at=expires_at,
    )


def delete_of(db: Session, account: ServiceAccount) -> int:
    """Delete all of the account; how many there were."""
    gone = delete(WorkloadIdentity).where(WorkloadIdentity.service_account_id == account.id)
    return len(db.execute(gone.returning(WorkloadIdentity.id)).all())


def enter(db: Session, account_id: str) -> ServiceAccount | None:
    """The account, for a request without an organization, which goes on within the account's.

    The organization is locked first, so that what is counted of it stays true.
    """
    with tenancy.across(db, "a token names the account alone"):
        rows = select(ServiceAccount.org_id).where(ServiceAccount.id == account_id)
        org_id = db.scalar(rows)
        if org_id is None:
            return None
        organizations.lock(db, org_id)
    tenancy.restrict(db, org_id)
    return by_key(db, ServiceAccount, account_id, lock=True)


def _maker_is_live(now: datetime) -> ColumnElement[bool]:
    return exists().where(
        ApiKey.id == WorkloadIdentity.created_by_key_id,
        ApiKey.revoked_at.is_(None),
        ApiKey.suspended_at.is_(None),
        or_(ApiKey.expires_at.is_(None), ApiKey.expires_at > now),
    )
