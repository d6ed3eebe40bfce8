"""Team members: who is in a team, and what they can do there."""

from typing import Any

from control.boundary import AuditedChanges
from control.policy import rights
from handlers import paging
from handlers.access import reach, views
from handlers.calls import OrgCall
from specserver import Forbidden, Reply
from storage.access import team_members
from storage.access.memberships import Membership
from storage.access.teams import Team

Body = dict[str, Any]


def list_(call: OrgCall, team: Team, limit: int, cursor: str | None = None) -> Body:
    found = team_members.page(call.db, team, limit=limit, after=paging.after(call, cursor))
    return paging.page(call, found, views.team_member)


def set_(call: OrgCall, team: Team, member: Membership, body: Body) -> Body:
    role: str | None = body["role"]
    given = reach.sets_of(call).of_team_role(body["role"])
    if team.is_default:
        role, given = _into_everyone(call, member, body["role"])
    _check_grant(call, team, given)
    _check_taken(call, team, member, given)
    was = team_members.find(call.db, team, member.user_id)
    before = {"in_team": was is not None, "role": was.role if was else None}
    changes = AuditedChanges.between(before, {"in_team": True, "role": role})
    team_members.put(call.db, team, member, role)
    call.audit(target=team.id, detail={"user_id": member.user_id, "role": role}, changes=changes)
    return views.team_member(team_members.fetch(call.db, team, member.user_id))


def remove(call: OrgCall, team: Team, member: Membership) -> Reply:
    was = team_members.fetch(call.db, team, member.user_id)
    _check_taken(call, team, member, frozenset())
    team_members.remove(call.db, team, member)
    call.audit(target=team.id, detail={"user_id": member.user_id, "role": was.role})
    return Reply.no_content()


def _into_everyone(
    call: OrgCall, member: Membership, asked: str
) -> tuple[str | None, rights.Permissions]:
    """The role to keep, None where it makes no difference there, and what they get by it."""
    sets = reach.sets_of(call)
    before = rights.in_everyone(member.role, None, sets, teams_only=member.teams_only)
    without = rights.in_everyone(member.role, None, sets, teams_only=False)
    held = rights.in_everyone(member.role, asked, sets, teams_only=False)
    given = (held - before) | sets.of_team_role(asked)
    return (None if held == without else asked), given


def _check_taken(call: OrgCall, team: Team, member: Membership, left: rights.Permissions) -> None:
    """Nobody takes what they do not have in the team, and so nobody gets rid of its leads."""
    known = team_members.find(call.db, team, member.user_id)
    role, sets = known.role if known else None, reach.sets_of(call)
    if team.is_default:
        held = rights.in_everyone(member.role, role, sets, teams_only=member.teams_only)
        held -= rights.in_everyone(member.role, None, sets, teams_only=True)
    else:
        held = sets.of_team_role(role) if role else frozenset()
    taken = held - left - call.caller.rights.held_at(team.place)
    reach.refuse(taken, "in the team this member has")


def _check_grant(call: OrgCall, team: Team, given: rights.Permissions) -> None:
    """Nobody gives what they do not have in the team, and so nobody raises themselves."""
    beyond = sorted(given - call.caller.rights.held_at(team.place))
    if beyond:
        raise Forbidden(
            "the member would have permissions in the team that you do not have there:"
            f" {', '.join(beyond)}; give a role that has no more than you have",
            code="permission_missing",
            permission=beyond[0],
        )
