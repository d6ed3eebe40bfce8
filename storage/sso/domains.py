"""SSO domains: whose addresses an organization signs in by its identity provider."""

from collections.abc import Collection
from datetime import datetime, timedelta
from typing import Final

from sqlalchemy import ForeignKey, Index, delete, false, func, or_, select, text
from sqlalchemy.orm import Mapped, Session, mapped_column

from storage import pages, tenancy
from storage.access.memberships import Membership
from storage.access.organizations import Organization
from storage.access.users import User
from storage.columns import Owned, Record, one_of
from storage.errors import RecordNotFound, StateConflict
from storage.lookups import by_key
from storage.pages import Page
from storage.sso import connections
from storage.sso.connections import SsoConnection

STATUSES: Final = ("pending", "verified", "failed")
KEPT_WITHOUT_RECORD: Final = timedelta(days=7)
"""So long a domain stays verified after its TXT record was first found to be missing."""
_VERIFIED: Final = text("verified_at IS NOT NULL")


class SsoDomain(Owned, Record):
    """Any organization may claim a domain; one claim at most is verified, by a record in the DNS.

    `domain` is in lower case and ASCII (Punycode). `txt_value` is of this claim alone: the record
    of one organization verifies no other's claim, and that of a claim that ended verifies no later
    one. It is public, as the DNS is.
    """

    __tablename__ = "sso_domains"
    __table_args__ = (
        one_of("status", STATUSES),
        Index(None, "org_id", "domain", unique=True),
        Index(
            "ix_sso_domains_verified",
            "domain",
            unique=True,
            postgresql_where=_VERIFIED,
            sqlite_where=_VERIFIED,
        ),
    )

    id: Mapped[str] = mapped_column(primary_key=True)
    org_id: Mapped[str] = mapped_column(ForeignKey("organizations.id"))
    domain: Mapped[str]
    txt_value: Mapped[str]
    # The connection that its addresses sign in with; None: none yet.
    connection_id: Mapped[str | None] = mapped_column(ForeignKey("sso_connections.id"), index=True)
    is_enforced: Mapped[bool] = mapped_column(default=False, server_default=false())
    status: Mapped[str] = mapped_column(default="pending")
    status_reason: Mapped[str | None]
    checked_at: Mapped[datetime | None] = mapped_column(index=True)
    verified_at: Mapped[datetime | None]
    # When a verified domain was first found without its record; None: it was there.
    missing_since: Mapped[datetime | None]

    def verify_again(self) -> None:
        """It stays in force while it is looked up, where it was."""
        if self.status == "failed":
            self.status, self.status_reason = "pending", None

    def was_found(self, at: datetime) -> None:
        """Its record is there, and no other organization's claim is verified."""
        self.status, self.status_reason, self.missing_since = "verified", None, None
        self.checked_at, self.verified_at = at, self.verified_at or at

    def was_missed(self, reason: str, at: datetime) -> bool:
        """The DNS has no such record. Whether it ceases to be verified by that.

        `reason` is a sentence its owner can act on.
        """
        self.checked_at, self.status_reason = at, reason
        if self.verified_at is None:
            self.status = "failed"
            return False
        self.missing_since = self.missing_since or at
        if self.missing_since + KEPT_WITHOUT_RECORD > at:
            return False
        self.status, self.verified_at, self.is_enforced = "failed", None, False
        return True

    def was_not_answered(self, reason: str, at: datetime) -> None:
        """The DNS said neither; what was verified stays so, however long it lasts."""
        self.checked_at, self.status_reason = at, reason
        if self.verified_at is None:
            self.status = "failed"

    def enforce(self, *, has_active_connection: bool) -> None:
        """Its addresses sign in by the connection alone. Conflict where they could not."""
        if self.verified_at is None:
            raise StateConflict(
                f"cannot enforce single sign-on for {self.domain}, which is {self.status}: create"
                " its TXT record and verify it first"
            )
        if not has_active_connection:
            raise StateConflict(
                f"cannot enforce single sign-on for {self.domain} without an active connection: set"
                " connection_id to one that somebody has signed in with"
            )
        self.is_enforced = True


def create(db: Session, made: SsoDomain) -> SsoDomain:
    db.add(made)
    db.flush()
    return made


def fetch(db: Session, org_id: str, domain_id: str, *, lock: bool = False) -> SsoDomain:
    found = by_key(db, SsoDomain, domain_id, lock=lock)
    if found is None or found.org_id != org_id:
        raise RecordNotFound("domain not found")
    return found


def page(db: Session, org_id: str, *, limit: int, after: str | None) -> Page[SsoDomain]:
    """The organization's claims, newest first."""
    rows = select(SsoDomain).where(SsoDomain.org_id == org_id)
    return pages.keyset(db, rows, SsoDomain.id, limit=limit, after=after)


def count(db: Session, org_id: str) -> int:
    rows = select(func.count()).select_from(SsoDomain)
    return db.scalars(rows.where(SsoDomain.org_id == org_id)).one()


def verified(db: Session, org_id: str) -> set[str]:
    """The names of the organization's verified domains."""
    rows = select(SsoDomain.domain).where(SsoDomain.org_id == org_id)
    return set(db.scalars(rows.where(SsoDomain.verified_at.is_not(None))))


def domain_of(email: str) -> str:
    """The domain of an address as it is kept; a subdomain is another one."""
    return email.rpartition("@")[2].lower()


def of_address(db: Session, email: str) -> SsoDomain | None:
    """The verified domain of an address, of whichever organization; None where there is none."""
    return holder(db, domain_of(email))


def holder(db: Session, domain: str, *, lock: bool = False) -> SsoDomain | None:
    """Whoever's verified domain the name is now."""
    rows = select(SsoDomain).where(SsoDomain.domain == domain, SsoDomain.verified_at.is_not(None))
    if lock:
        rows = rows.with_for_update().execution_options(populate_existing=True)
    with tenancy.across(db, "a domain is one organization's at a time"):
        return db.scalars(rows).one_or_none()


def connection_of(db: Session, domain: SsoDomain) -> SsoConnection | None:
    """What its addresses can sign in with now, of whichever organization."""
    if domain.connection_id is None:
        return None
    with tenancy.across(db, "whoever signs in acts in no organization yet"):
        connection = connections.fetch(db, domain.org_id, domain.connection_id)
    return connection if connection.is_usable else None


def of_connection(db: Session, org_id: str, connection_id: str) -> list[SsoDomain]:
    """Those whose addresses sign in with the connection."""
    rows = select(SsoDomain).where(SsoDomain.org_id == org_id)
    rows = rows.where(SsoDomain.connection_id == connection_id).order_by(SsoDomain.domain)
    return list(db.scalars(rows))


def leave_connection(db: Session, org_id: str, connection_id: str) -> None:
    """For a connection that is removed. Conflict while a domain has no other way to sign in."""
    refuse_enforced(db, org_id, connection_id)
    for domain in of_connection(db, org_id, connection_id):
        domain.connection_id = None
    db.flush()


def refuse_enforced(db: Session, org_id: str, connection_id: str) -> None:
    """Conflict where people can sign in by this connection alone, which is to sign in nobody."""
    held = [one.domain for one in of_connection(db, org_id, connection_id) if one.is_enforced]
    if held:
        raise StateConflict(
            f"single sign-on is enforced for {', '.join(held)} by this connection: turn that off,"
            " or give the domain another connection first"
        )


def note_enforced(db: Session, org: Organization) -> None:
    """Tell the organization which domains it enforces: its requests are held to that."""
    db.flush()
    rows = select(SsoDomain.domain).where(SsoDomain.org_id == org.id, SsoDomain.is_enforced)
    org.sso_enforced_domains = list(db.scalars(rows.order_by(SsoDomain.domain))) or None


def has_break_glass_owner(db: Session, org: Organization) -> bool:
    """Whether some owner can sign in without the identity provider.

    By a password and a second factor, or as their address is in no domain that is enforced.
    """
    note_enforced(db, org)
    enforced = set(org.sso_enforced_domains or ())
    rows = select(User).join(Membership, Membership.user_id == User.id)
    owners = rows.where(Membership.org_id == org.id, Membership.role == "owner")
    return any(
        owner.has_second_factor or domain_of(owner.email) not in enforced
        for owner in db.scalars(owners)
        if owner.is_person
    )


def release(db: Session, org: Organization) -> None:
    """Give up all claims of the organization, so that others can verify the domains."""
    db.execute(delete(SsoDomain).where(SsoDomain.org_id == org.id))
    org.sso_enforced_domains = None


def due(db: Session, before: datetime, limit: int) -> list[tuple[str, str]]:
    """Of all organizations: ids of them and of verified domains not looked up since that moment."""
    rows = select(SsoDomain.org_id, SsoDomain.id).where(SsoDomain.verified_at.is_not(None))
    unseen = or_(SsoDomain.checked_at.is_(None), SsoDomain.checked_at < before)
    return list(db.execute(rows.where(unseen).order_by(SsoDomain.checked_at).limit(limit)).tuples())


def load(db: Session, ids: Collection[str]) -> dict[str, SsoDomain]:
    """Those of these ids that are there, for a worker."""
    rows = select(SsoDomain).where(SsoDomain.id.in_(ids))
    return {one.id: one for one in db.scalars(rows)}
