"""Organizations: the tenant that owns everything else."""

from datetime import datetime
from typing import Final

from sqlalchemy import bindparam, select
from sqlalchemy.orm import Mapped, Session, mapped_column

from storage import identifiers, pages
from storage.columns import Record, one_of
from storage.errors import Conflict, NotFound
from storage.memberships import Membership
from storage.pages import Page

PLANS: Final = ("free", "solo", "team", "enterprise")
STATUSES: Final = ("open", "closed")


class Organization(Record):
    __tablename__ = "organizations"
    __table_args__ = (one_of("plan", PLANS), one_of("status", STATUSES))

    id: Mapped[str] = mapped_column(primary_key=True)
    name: Mapped[str]
    slug: Mapped[str] = mapped_column(unique=True)
    default_region: Mapped[str | None]
    plan: Mapped[str] = mapped_column(default="free")
    status: Mapped[str] = mapped_column(default="open")
    require_mfa: Mapped[bool] = mapped_column(default=False)
    closed_at: Mapped[datetime | None]

    def close(self, at: datetime) -> None:
        if self.status == "closed":
            raise Conflict("cannot close an organization that is closed")
        self.status = "closed"
        self.closed_at = at


def create(
    db: Session, *, name: str, slug: str, default_region: str | None = None, plan: str = "free"
) -> Organization:
    organization = Organization(
        id=identifiers.new("org_"), name=name, slug=slug, default_region=default_region, plan=plan
    )
    db.add(organization)
    db.flush()
    return organization


def fetch(db: Session, org_id: str) -> Organization:
    organization = db.get(Organization, org_id)
    if organization is None:
        raise NotFound("organization not found")
    return organization


_HOLD: Final = (
    select(Organization.id)
    .where(Organization.id == bindparam("org_id"))
    # Events and other rows that refer to the organization can still be written by workers.
    .with_for_update(key_share=True)
)


def hold(db: Session, org_id: str) -> None:
    """Let nobody else hold the organization until the transaction ends.

    On SQLite a transaction that writes excludes all others anyway.
    """
    if db.get_bind().dialect.name == "postgresql":
        db.execute(_HOLD, {"org_id": org_id})


def of_user(db: Session, user_id: str) -> list[tuple[Organization, str]]:
    """The user's organizations, oldest first, each with the user's role there."""
    rows = db.execute(
        select(Organization, Membership.role)
        .join(Membership, Membership.org_id == Organization.id)
        .where(Membership.user_id == user_id)
        .order_by(Organization.id)
    )
    return [(organization, role) for organization, role in rows]


def page_of_user(db: Session, user_id: str, *, limit: int, after: str | None) -> Page[Organization]:
    """The user's organizations, newest first."""
    rows = (
        select(Organization)
        .join(Membership, Membership.org_id == Organization.id)
        .where(Membership.user_id == user_id)
    )
    return pages.keyset(db, rows, Organization.id, limit=limit, after=after)
