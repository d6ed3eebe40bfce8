"""Organizations: the tenant that owns everything else."""

from collections.abc import Collection, Mapping
from datetime import datetime
from typing import Any, Final

from sqlalchemy import BigInteger, ColumnElement, and_, bindparam, exists, func, or_, select
from sqlalchemy.orm import Mapped, Session, mapped_column

from storage import identifiers, tenancy
from storage.access import teams
from storage.access.api_keys import ApiKey
from storage.access.memberships import Membership
from storage.columns import Json, Owned, Record, one_of
from storage.errors import RecordNotFound, StateConflict
from storage.instances.instances import Instance
from storage.lookups import by_key
from storage.prepared import Prepared

PLANS: Final = ("free", "solo", "team", "enterprise")
STATUSES: Final = ("open", "closed")


class Organization(Owned, Record):
    __tablename__ = "organizations"
    __table_args__ = (one_of("plan", PLANS), one_of("status", STATUSES))

    id: Mapped[str] = mapped_column(primary_key=True)
    name: Mapped[str]
    slug: Mapped[str] = mapped_column(unique=True)
    default_region: Mapped[str | None]
    plan: Mapped[str] = mapped_column(default="free")
    status: Mapped[str] = mapped_column(default="open")
    require_mfa: Mapped[bool] = mapped_column(default=False)
    session_max_age_s: Mapped[int | None]
    api_key_max_age_s: Mapped[int | None]
    # None: any.
    allowed_email_domains: Mapped[list[str] | None] = mapped_column(Json)
    # Whose addresses act here by single sign-on alone; storage/sso/domains.py writes them.
    sso_enforced_domains: Mapped[list[str] | None] = mapped_column(Json)
    # From which severity on alerts are sent by email, as control/policy/alert_kinds.py has them.
    alert_emails: Mapped[str] = mapped_column(default="critical", server_default="critical")
    alerts_mailed_at: Mapped[datetime | None]
    critical_alerts_mailed_at: Mapped[datetime | None]
    # What may be spent in a month, None: any amount; and what happens once it is.
    spending_cap_cents: Mapped[int | None] = mapped_column(BigInteger)
    spending_cap_on_reach: Mapped[str] = mapped_column(default="refuse", server_default="refuse")
    closed_at: Mapped[datetime | None]
    # What predefined roles hold where the organization has changed it: by scope and role, such as
    # `org:member` and `team:viewer`.
    role_sets: Mapped[dict[str, list[str]] | None] = mapped_column(Json)

    @classmethod
    def owner_id(cls) -> Any:
        return cls.id

    @property
    def owner(self) -> str:
        return self.id

    def change(self, values: Mapping[str, Any]) -> None:
        """Its name, and what it asks of sessions, API keys and addresses."""
        for member, value in values.items():
            setattr(self, member, value)

    def cap_spending(self, monthly_cents: int | None, on_reach: str) -> None:
        self.spending_cap_cents, self.spending_cap_on_reach = monthly_cents, on_reach

    def close(self, at: datetime) -> None:
        if self.status == "closed":
            raise StateConflict("cannot close an organization that is closed")
        self.status = "closed"
        self.closed_at = at


def names_of(db: Session, org_ids: Collection[str]) -> dict[str, str]:
    """For workers: of organizations, by their ids."""
    rows = select(Organization.id, Organization.name).where(Organization.id.in_(org_ids))
    return {str(org_id): str(name) for org_id, name in db.execute(rows)}


def create(
    db: Session, *, name: str, slug: str, default_region: str | None = None, plan: str = "free"
) -> Organization:
    organization = Organization(
        id=identifiers.new("org_"), name=name, slug=slug, default_region=default_region, plan=plan
    )
    if tenancy.is_for_none(db):
        # Whoever makes one goes on within it.
        tenancy.restrict(db, organization.id)
    db.add(organization)
    db.flush()
    teams.found(db, organization.id)
    return organization


def fetch(db: Session, org_id: str) -> Organization:
    organization = by_key(db, Organization, org_id)
    if organization is None:
        raise RecordNotFound("organization not found")
    return organization


LOCKING: Final = (
    select(Organization.id)
    .where(Organization.id == bindparam("org_id"))
    # Events and other rows that refer to the organization can still be written by workers.
    .with_for_update(key_share=True)
)
_LOCK: Final = Prepared(LOCKING)


def lock(db: Session, org_id: str) -> None:
    """Let nobody else lock the organization until the transaction ends.

    On SQLite a transaction that writes excludes all others anyway.
    """
    if db.get_bind().dialect.name == "postgresql":
        _LOCK.rows(db, org_id=org_id)


def of_user(db: Session, user_id: str) -> list[tuple[Organization, str]]:
    """The user's organizations, oldest first, each with the user's role there."""
    rows = (
        select(Organization, Membership.role)
        .join(Membership, Membership.org_id == Organization.id)
        .where(Membership.user_id == user_id)
        .order_by(Organization.id)
    )
    with tenancy.across(db, "a user may belong to many"):
        return [(organization, role) for organization, role in db.execute(rows)]


def of_key(db: Session, key: ApiKey) -> Organization:
    """The one that the API key belongs to."""
    with tenancy.across(db, "a key is good for its own, and asked for outside of it"):
        return fetch(db, key.org_id)


def count_closed(db: Session, user_id: str, since: datetime) -> int:
    """Those that the user owned and that were closed since; they stay, for members to read."""
    return _count_owned_by(db, user_id, Organization.closed_at >= since)


def count_owned(db: Session, user_id: str, plan: str | None = None) -> int:
    """Those that the user owns, of this plan or of any, while they are open or have data."""
    has_data = exists().where(Instance.org_id == Organization.id, Instance.status != "erased")
    matches = or_(Organization.status == "open", has_data)
    if plan is not None:
        matches = and_(matches, Organization.plan == plan)
    return _count_owned_by(db, user_id, matches)


def _count_owned_by(db: Session, user_id: str, matches: ColumnElement[bool]) -> int:
    rows = (
        select(func.count())
        .select_from(Organization)
        .join(Membership, Membership.org_id == Organization.id)
        .where(Membership.user_id == user_id, Membership.role == "owner", matches)
    )
    with tenancy.across(db, "a user may own many"):
        return db.scalars(rows).one()


def is_slug_taken(db: Session, slug: str) -> bool:
    """By any organization."""
    with tenancy.across(db, "slugs are unique among all"):
        return db.scalar(select(exists().where(Organization.slug == slug))) is True
