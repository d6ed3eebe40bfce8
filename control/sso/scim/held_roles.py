"""What a member holds, kept while they are deactivated, and given back when they return.

Not what their groups give, which follows from the groups; and no API keys, which are revoked.
"""

from typing import Any, Final

from sqlalchemy import select
from sqlalchemy.orm import Session

from storage import identifiers
from storage.access.memberships import Membership
from storage.access.projects import Project
from storage.access.teams import Team, TeamMember
from storage.roles.project_members import ProjectMember
from storage.roles.roles import ALL_OF_IT, CustomRole, RoleAssignment

_NOTHING: Final[dict[str, Any]] = {}


def kept(db: Session, member: Membership) -> dict[str, Any]:
    """To be stored: role, teams, projects and custom roles, by their ids."""
    whose = {"org_id": member.org_id, "user_id": member.user_id}
    assigned = db.scalars(select(RoleAssignment).filter_by(**whose).order_by(RoleAssignment.id))
    return {
        "role": member.role,
        "teams_only": member.teams_only,
        "teams": {
            one.team_id: one.role for one in db.scalars(select(TeamMember).filter_by(**whose))
        },
        "projects": {
            one.project_id: one.role for one in db.scalars(select(ProjectMember).filter_by(**whose))
        },
        "assigned": [[one.role_id, one.team_id, one.created_by] for one in assigned],
    }


def give_back(db: Session, member: Membership, held: dict[str, Any] | None) -> None:
    """What of it there still is, to somebody who has just become a member again."""
    held = held or _NOTHING
    whose = {"org_id": member.org_id, "user_id": member.user_id}
    member.teams_only = held.get("teams_only", False)
    teams = _still(db, Team, member, held.get("teams", ()))
    for team_id in teams:
        db.add(TeamMember(team_id=team_id, role=held["teams"][team_id], **whose))
    for project_id in _still(db, Project, member, held.get("projects", ())):
        role = held["projects"][project_id]
        db.add(ProjectMember(id=identifiers.new("pm_"), project_id=project_id, role=role, **whose))
    _assign(db, member, held.get("assigned", ()))
    db.flush()


def _assign(db: Session, member: Membership, assigned: Any) -> None:
    roles = _still(db, CustomRole, member, {role_id for role_id, _, _ in assigned})
    teams = _still(db, Team, member, {team_id for _, team_id, _ in assigned if team_id})
    for role_id, team_id, created_by in assigned:
        if role_id in roles and (team_id is None or team_id in teams):
            db.add(
                RoleAssignment(
                    id=identifiers.new("asg_"),
                    org_id=member.org_id,
                    role_id=role_id,
                    user_id=member.user_id,
                    team_id=team_id,
                    within=team_id or ALL_OF_IT,
                    created_by=created_by,
                )
            )


def _still(db: Session, record: Any, member: Membership, ids: Any) -> set[str]:
    rows = select(record.id).where(record.org_id == member.org_id, record.id.in_(list(ids)))
    return set(db.scalars(rows))
