"""What needs approval by the policy of a team, and may be done without by whoever can give it."""

from typing import Any

from control import ordering
from control.ordering import approving
from control.policy import approvals as policy
from control.policy.approvals import Policy, Reason
from handlers.calls import OrgCall
from handlers.instances import approval_views
from specserver import Forbidden
from storage.access import teams
from storage.access.projects import Project
from storage.access.teams import Team
from storage.instances.instances import Instance

Body = dict[str, Any]


def preview(call: OrgCall, project: Project, body: Body) -> Body:
    """What the order would come to, and which approval it would wait for."""
    shown = ordering.preview(call.requester, project, body)
    team, order = teams.fetch(call.db, call.org.id, project.team_id), shown["order"]
    found = _reasons(call, team, order["region"], order["size"], order["storage_bytes"])
    can_decide = approving.deciders(call.requester, team) if found else []
    approval = approval_views.needed(found, can_decide) if found else None
    return {**shown, "approval_required": bool(found), "approval": approval}


def may_be_needed(call: OrgCall, project: Project) -> bool:
    """Whether the order has to be looked at at all. Most who order can decide, or need none."""
    if call.caller.rights.has(policy.DECIDE, project.place):
        return False
    team = teams.fetch(call.db, call.org.id, project.team_id)
    return not Policy.of(team.approval_policy).is_never


def check_new(call: OrgCall, made: Instance) -> None:
    """Of an instance just placed that was not ordered by itself: a branch, a restored backup.

    Raises Forbidden, with which the instance is gone, where an order of it would need approval.
    """
    team = _team(call, made)
    found = _reasons(call, team, made.region, made.size, made.storage_bytes, besides=made.id)
    _refuse(found, "order an instance, or have somebody make it who can approve for the team")


def check_growth(call: OrgCall, instance: Instance, body: Body) -> None:
    """Of an instance that is to be larger: Forbidden where an order of it as such needs approval.

    One that does not get larger needs none.
    """
    size = body.get("size") or instance.size
    storage_bytes = body.get("storage_bytes") or instance.storage_bytes
    if policy.is_larger((size, storage_bytes), than=(instance.size, instance.storage_bytes)):
        team = _team(call, instance)
        found = _reasons(call, team, instance.region, size, storage_bytes, besides=instance.id)
        _refuse(found, "have somebody change it who can approve for the team")


def check_return(call: OrgCall, instance: Instance) -> None:
    """Of a deleted one that comes back: it was ordered once, but may exceed the budget now."""
    team = _team(call, instance)
    of = instance.region, instance.size, instance.storage_bytes
    found = _reasons(call, team, *of, besides=instance.id)
    over = [reason for reason in found if reason["rule"] == "over_budget"]
    _refuse(over, "have somebody undelete it who can approve for the team")


def check_move(call: OrgCall, team_id: str) -> None:
    """Of a project with instances that another team is to have, and never asked for."""
    team = teams.fetch(call.db, call.org.id, team_id)
    if not Policy.of(team.approval_policy).is_never and not _decides(call, team):
        message = "the team's orders need approval, and the project has instances"
        found = [Reason(rule="moved", message=message)]
        _refuse(found, "have somebody move it who can approve for that team")


def _team(call: OrgCall, instance: Instance) -> Team:
    return teams.fetch(call.db, call.org.id, instance.team_id)


def _decides(call: OrgCall, team: Team) -> bool:
    return call.caller.rights.has(policy.DECIDE, team.place)


def _reasons(
    call: OrgCall,
    team: Team,
    region: str,
    size: str,
    storage_bytes: int,
    *,
    besides: str | None = None,
) -> list[Reason]:
    """None for those who can decide: they place at once what they would approve."""
    if _decides(call, team):
        return []
    return approving.reasons(call.requester, team, region, size, storage_bytes, besides=besides)


def _refuse(reasons: list[Reason], instead: str) -> None:
    if reasons:
        told = "; ".join(reason["message"] for reason in reasons)
        raise Forbidden(
            f"by the approval policy of the team this needs approval: {told}; {instead}",
            code="approval_required",
        )
