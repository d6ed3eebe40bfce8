"""All that an organization's records say of a member, in one row."""

from collections.abc import Collection
from typing import Any, Final

from sqlalchemy import bindparam, or_, select
from sqlalchemy.orm import Session

from storage import tenancy
from storage.access import teams
from storage.access.memberships import PEOPLE, Membership
from storage.access.organizations import Organization
from storage.access.users import User
from storage.prepared import Prepared
from storage.roles import project_members, roles
from storage.sso import scim_groups

COLUMNS: Final = (
    Membership.role,
    Membership.teams_only,
    teams.roles_of_member(),
    roles.assigned_to_member(),
    project_members.roles_of_member(),
    scim_groups.granted_to_member(),
)
"""Of the membership of a query: role, whether in teams only, roles in teams, custom ones, projects,
and what groups of an identity provider give.

Each of the last four is an object by ids; null or empty where there is none.
"""
_OF_MEMBER: Final = Prepared(
    select(*COLUMNS, Organization.role_sets)
    .select_from(Membership)
    .join(Organization, Organization.id == Membership.org_id)
    .where(Membership.org_id == bindparam("org_id"), Membership.user_id == bindparam("user_id"))
)


def find(db: Session, org_id: str, user_id: str) -> tuple[Any, ...] | None:
    """`COLUMNS`, and what the organization's predefined roles hold; None for no member."""
    with tenancy.across(db, "asked for by the organization's id, also before one is entered"):
        row: tuple[Any, ...] | None = _OF_MEMBER.one_or_none(db, org_id=org_id, user_id=user_id)
    return row


def addresses(db: Session, org_id: str, org_roles: Collection[str], limit: int) -> list[str]:
    """The email addresses of people with one of these roles, by hand or by a group.

    Those of the oldest accounts come first.
    """
    rows = select(User.email).join(Membership, Membership.user_id == User.id)
    has_one = or_(Membership.role.in_(org_roles), scim_groups.gives_to_member(org_roles))
    rows = rows.where(Membership.org_id == org_id, PEOPLE, has_one)
    return list(db.scalars(rows.order_by(User.id).limit(limit)))
