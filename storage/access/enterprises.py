"""Enterprises: a parent organization, and the subsidiaries that are attached to it.

An organization has one row at most, as a parent or as a subsidiary of one. So it has one parent at
most, no parent is a subsidiary, and the database itself holds that whoever writes at the same time.
"""

from collections import defaultdict
from collections.abc import Collection, Mapping
from typing import Any, NamedTuple

from sqlalchemy import BigInteger, ForeignKey, false, func, select
from sqlalchemy.orm import Mapped, Session, mapped_column

from storage import pages, tenancy
from storage.access.memberships import Membership
from storage.access.organizations import Organization
from storage.columns import Owned, Record
from storage.errors import RecordNotFound
from storage.events import audit
from storage.instances.instances import HOSTED, LIVE, Instance
from storage.lookups import by_key
from storage.pages import Page

TERMS = (
    "contract_reference",
    "billing_email",
    "commitment_usd_cents_month",
    "starts_on",
    "ends_on",
)


class EnterpriseOrg(Owned, Record):
    """A parent, which has terms, or a subsidiary of `parent_id`. Dates are as in 2026-11-29."""

    __tablename__ = "enterprise_orgs"

    org_id: Mapped[str] = mapped_column(ForeignKey("organizations.id"), primary_key=True)
    parent_id: Mapped[str | None] = mapped_column(ForeignKey("enterprise_orgs.org_id"), index=True)
    attached_by: Mapped[str | None]
    contract_reference: Mapped[str | None]
    billing_email: Mapped[str | None]
    commitment_usd_cents_month: Mapped[int | None] = mapped_column(BigInteger)
    starts_on: Mapped[str | None]
    ends_on: Mapped[str | None]
    # Of a parent: it gets one invoice for all, and its subsidiaries none.
    consolidated_invoice: Mapped[bool] = mapped_column(default=False, server_default=false())

    @property
    def role(self) -> str:
        return "parent" if self.parent_id is None else "subsidiary"

    def change(self, terms: Mapping[str, Any]) -> None:
        for name in (*TERMS, "consolidated_invoice"):
            if name in terms:
                setattr(self, name, terms[name])


class Subsidiary(NamedTuple):
    """What its parent is shown of it, beside sums."""

    org_id: str
    name: str
    status: str
    attached_at: Any


class AlikeInstances(NamedTuple):
    """So many instances of an organization that are alike."""

    region: str
    size: str
    storage_bytes: int
    instances: int


def find(db: Session, org_id: str) -> EnterpriseOrg | None:
    """What the organization is in an enterprise; None where it is in none."""
    return by_key(db, EnterpriseOrg, org_id)


def found(db: Session, org_id: str, terms: Mapping[str, Any]) -> EnterpriseOrg:
    """Make the organization a parent; the database refuses one that is in an enterprise."""
    made = EnterpriseOrg(org_id=org_id)
    made.change(terms)
    db.add(made)
    db.flush()
    return made


def parent_name(db: Session, of: EnterpriseOrg) -> str:
    with tenancy.across(db, "a subsidiary is shown its parent's name, and nothing else of it"):
        return db.scalars(select(Organization.name).where(Organization.id == of.parent_id)).one()


def count(db: Session, parent_id: str) -> int:
    rows = select(func.count()).select_from(EnterpriseOrg)
    with tenancy.across(db, "a parent counts its subsidiaries"):
        return db.scalars(rows.where(EnterpriseOrg.parent_id == parent_id)).one()


def ids(db: Session, parent_id: str) -> list[str]:
    rows = select(EnterpriseOrg.org_id).where(EnterpriseOrg.parent_id == parent_id)
    with tenancy.across(db, "a parent knows its subsidiaries"):
        return list(db.scalars(rows))


def hold_ids(db: Session, parent_id: str) -> list[str]:
    """As `ids`; none of them is detached until the commit."""
    rows = select(EnterpriseOrg.org_id).where(EnterpriseOrg.parent_id == parent_id)
    with tenancy.across(db, "a parent knows its subsidiaries"):
        return list(db.scalars(rows.order_by(EnterpriseOrg.org_id).with_for_update()))


def page(db: Session, parent_id: str, *, limit: int, after: str | None) -> Page[Subsidiary]:
    """The subsidiaries, the newest organizations first."""
    shown = EnterpriseOrg.org_id, Organization.name, Organization.status, EnterpriseOrg.created_at
    rows = select(*shown).join(Organization, Organization.id == EnterpriseOrg.org_id)
    rows = rows.where(EnterpriseOrg.parent_id == parent_id)
    if after is not None:
        rows = rows.where(EnterpriseOrg.org_id < after)
    rows = rows.order_by(EnterpriseOrg.org_id.desc()).limit(limit + 1)
    with tenancy.across(db, "a parent is shown its subsidiaries' names"):
        return pages.cut([Subsidiary(*row) for row in db.execute(rows)], "org_id", limit)


def shown(db: Session, subsidiary: EnterpriseOrg) -> Subsidiary:
    with tenancy.across(db, "a parent is shown its subsidiary's name"):
        org = db.get_one(Organization, subsidiary.org_id)
        return Subsidiary(org.id, org.name, org.status, subsidiary.created_at)


def held(db: Session, org_ids: Collection[str]) -> dict[str, list[AlikeInstances]]:
    """The live instances of each of these organizations, counted by region, size and storage."""
    alike = Instance.org_id, Instance.region, Instance.size, Instance.storage_bytes
    rows: Any = select(*alike, func.count()).where(Instance.org_id.in_(org_ids), HOSTED, LIVE)
    found: dict[str, list[AlikeInstances]] = defaultdict(list)
    with tenancy.across(db, "a parent is shown sums of its subsidiaries' instances"):
        for org_id, *told in db.execute(rows.group_by(*alike)):
            found[org_id].append(AlikeInstances(*told))
    return found


def to_attach(db: Session, org_id: str, user_id: str) -> tuple[Organization, Membership]:
    """The organization and the user's membership, neither of which changes until the commit.

    Raises RecordNotFound for what the user is no member of, as for what does not exist.
    """
    with tenancy.across(db, "an owner of two organizations attaches one to the other"):
        member = by_key(db, Membership, org_id, user_id)
        if member is None:
            raise RecordNotFound("organization not found")
        # Changes of an organization, of its members and its closing hold its row: they wait.
        rows = select(Organization).where(Organization.id == org_id).with_for_update(read=True)
        org = db.scalars(rows.execution_options(populate_existing=True)).one()
        anew = select(Membership).where(Membership.org_id == org_id, Membership.user_id == user_id)
        member = db.scalars(anew.execution_options(populate_existing=True)).one_or_none()
        if member is None:
            raise RecordNotFound("organization not found")
        return org, member


def role_elsewhere(db: Session, org_id: str) -> str | None:
    """What another organization is in an enterprise: `parent`, `subsidiary`, or nothing."""
    with tenancy.across(db, "what is in an enterprise is attached to no other"):
        there = by_key(db, EnterpriseOrg, org_id)
        return None if there is None else there.role


def attach(db: Session, parent_id: str, org_id: str, by: str) -> EnterpriseOrg:
    """The database refuses one that is in an enterprise."""
    made = EnterpriseOrg(org_id=org_id, parent_id=parent_id, attached_by=by)
    with tenancy.across(db, "the row is the subsidiary's, and written by its parent"):
        db.add(made)
        db.flush()
    return made


def fetch_subsidiary(
    db: Session, org_id: str, subsidiary_id: str, *, lock: bool = False
) -> EnterpriseOrg:
    """A subsidiary of that organization, or the organization itself as a subsidiary."""
    with tenancy.across(db, "a parent's subsidiaries are other organizations"):
        found = by_key(db, EnterpriseOrg, subsidiary_id, lock=lock)
    sides = () if found is None or found.parent_id is None else (found.parent_id, found.org_id)
    if found is None or org_id not in sides:
        raise RecordNotFound("subsidiary not found")
    return found


def detach(db: Session, subsidiary: EnterpriseOrg) -> None:
    with tenancy.across(db, "the row is the subsidiary's, and either side may end it"):
        db.delete(subsidiary)
        db.flush()


def is_member(db: Session, org_id: str, user_id: str) -> bool:
    with tenancy.across(db, "what is told of another organization is for its members only"):
        return by_key(db, Membership, org_id, user_id) is not None


def audit_elsewhere(
    db: Session, org_id: str, action: str, *, user_id: str, target: str, request_id: str
) -> None:
    """In the log of the other organization, which learns no more of this one than it sees.

    Who did it is named only if they are a member there, and from where never.
    """
    is_known = is_member(db, org_id, user_id)
    with tenancy.across(db, "what concerns two organizations is in the logs of both"):
        audit.append(
            db,
            org_id,
            action,
            actor_kind="user" if is_known else "system",
            actor_id=user_id if is_known else None,
            target=target,
            request_id=request_id,
        )
