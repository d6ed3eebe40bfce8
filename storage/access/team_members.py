"""Who is in a team, and with which role."""

from collections.abc import Collection
from datetime import datetime
from typing import Any, NamedTuple

from sqlalchemy import ColumnElement, Select, and_, case, func, or_, select
from sqlalchemy.orm import Session

from storage import pages
from storage.access.memberships import PEOPLE, Membership
from storage.access.teams import Team, TeamMember, everyone_of
from storage.access.users import User
from storage.errors import RecordNotFound
from storage.lookups import by_key
from storage.pages import Page
from storage.sso import scim_groups


class InTeam(NamedTuple):
    """Somebody in a team; without a role, they are in Everyone by their role in the org."""

    user_id: str
    email: str
    name: str
    role: str | None
    created_at: datetime


# Whoever is a member is in Everyone, but for those who were taken out and have no role there.
_IN_EVERYONE = or_(Membership.teams_only.is_(False), TeamMember.user_id.is_not(None))


def page(db: Session, team: Team, *, limit: int, after: str | None) -> Page[InTeam]:
    """Those whose accounts are newest first."""
    rows = _rows(team)
    if after is not None:
        rows = rows.where(Membership.user_id < after)
    rows = rows.order_by(Membership.user_id.desc()).limit(limit + 1)
    return pages.cut([InTeam(*row) for row in db.execute(rows)], "user_id", limit)


def find(db: Session, team: Team, user_id: str) -> InTeam | None:
    row = db.execute(_rows(team).where(Membership.user_id == user_id)).one_or_none()
    return None if row is None else InTeam(*row)


def fetch(db: Session, team: Team, user_id: str) -> InTeam:
    found = find(db, team, user_id)
    if found is None:
        raise RecordNotFound("the user is not in the team")
    return found


def put(db: Session, team: Team, member: Membership, role: str | None) -> None:
    """In the team with this role; None in Everyone: by the role in the organization."""
    known = by_key(db, TeamMember, team.id, member.user_id)
    if team.is_default:
        member.teams_only = False
    if role is None and known is not None:
        db.delete(known)
    elif known is not None and role is not None:
        known.role = role
    elif role is not None:
        ids = {"team_id": team.id, "user_id": member.user_id, "org_id": team.org_id}
        db.add(TeamMember(**ids, role=role))
    db.flush()


def remove(db: Session, team: Team, member: Membership) -> None:
    known = by_key(db, TeamMember, team.id, member.user_id)
    if known is not None:
        db.delete(known)
    if team.is_default:
        member.teams_only = True
    db.flush()


class WithRoles(NamedTuple):
    """A member, with what they hold their rights by in a team."""

    user_id: str
    email: str
    name: str
    role: str
    teams_only: bool
    team_role: str | None


def with_roles(
    db: Session, team: Team, *, org_roles: Collection[str], team_roles: Collection[str], limit: int
) -> list[WithRoles]:
    """People with one of these roles in the organization or in the team; the team's own first.

    What groups of an identity provider give counts as what was given by hand; `team_role` is the
    latter alone.
    """
    who = Membership.user_id, User.email, User.name, Membership.role, Membership.teams_only
    by_hand = TeamMember.role.in_(team_roles)
    in_team = or_(by_hand, scim_groups.gives_to_member((), team.id, team_roles))
    in_org = or_(Membership.role.in_(org_roles), scim_groups.gives_to_member(org_roles))
    rows = (
        select(*who, TeamMember.role)
        .join(User, User.id == Membership.user_id)
        .outerjoin(TeamMember, _role_in(team.id))
        .where(Membership.org_id == team.org_id, PEOPLE)
        .where(or_(in_org, in_team))
        .order_by(case((in_team, 0), else_=1), Membership.user_id)
        .limit(limit)
    )
    return [WithRoles(*row) for row in db.execute(rows)]


def counts(db: Session, org_id: str, team_ids: list[str]) -> dict[str, int]:
    """How many are in each of these teams."""
    rows = select(TeamMember.team_id, func.count()).group_by(TeamMember.team_id)
    rows = rows.where(TeamMember.org_id == org_id, TeamMember.team_id.in_(team_ids))
    found = {**dict.fromkeys(team_ids, 0), **dict(db.execute(rows).tuples().all())}
    everyone = everyone_of(org_id)
    if everyone in found:
        members = select(func.count()).select_from(Membership)
        members = members.outerjoin(TeamMember, _role_in(everyone))
        found[everyone] = db.scalars(members.where(Membership.org_id == org_id, _IN_EVERYONE)).one()
    return found


def _rows(team: Team) -> Select[*tuple[Any, ...]]:
    since = func.coalesce(TeamMember.created_at, Membership.created_at)
    who = Membership.user_id, User.email, User.name
    rows: Select[*tuple[Any, ...]] = select(*who, TeamMember.role, since)
    rows = rows.join(User, User.id == Membership.user_id)
    rows = rows.join(TeamMember, _role_in(team.id), isouter=team.is_default)
    rows = rows.where(Membership.org_id == team.org_id)
    return rows.where(_IN_EVERYONE) if team.is_default else rows


def _role_in(team_id: str) -> ColumnElement[bool]:
    return and_(
        TeamMember.team_id == team_id,
        TeamMember.user_id == Membership.user_id,
        TeamMember.org_id == Membership.org_id,
    )
