"""Orders that need approval: why, who decides, and placing one that was approved.

Whether the caller needs it at all depends on their rights, which handlers know.
"""

from dataclasses import replace
from itertools import islice
from typing import Final

from control.access import role_holders
from control.ordering.placing import place
from control.ordering.requester import Requester
from control.policy import approvals as policy
from control.policy import permissions
from control.policy.approvals import DECIDE, Asked, Policy, Reason
from control.policy.permissions import role_sets
from storage.access import api_keys, projects, team_members
from storage.access.projects import Project
from storage.access.team_members import WithRoles
from storage.access.teams import Team
from storage.errors import RecordNotFound, StateConflict
from storage.events import audit
from storage.instances import allocations
from storage.instances.approvals import Approval
from storage.instances.instances import Instance

_ORDER: Final = "instances:write"
_LOOKED_AT: Final = 200
"""Members of whom those who can decide are chosen."""


def reasons(
    by: Requester,
    team: Team,
    region: str,
    size: str,
    storage_bytes: int,
    *,
    besides: str | None = None,
) -> list[Reason]:
    """Why an instance of that size and storage needs approval; none: it does not.

    `besides` is the instance itself, where there is one already.
    """
    asked_for = Policy.of(team.approval_policy)
    if asked_for.is_never:
        return []
    rest, prices = 0, by.prices.at(by.now)
    if asked_for.over_budget:
        held = allocations.of_team(by.db, team.org_id, team.id, besides=besides)
        rest = policy.cost_cents(prices, held)
    cost = prices.instance_month_cents(region, size, storage_bytes)
    asked = Asked(size, cost, rest, team.monthly_budget_cents, by.prices.currency)
    return policy.reasons(asked_for, asked)


def deciders(by: Requester, team: Team) -> list[WithRoles]:
    """Who can decide for the team, its own leads first; no more than are written to."""
    sets = role_sets(by.org.role_sets)
    found = team_members.with_roles(
        by.db,
        team,
        org_roles=[role for role in permissions.ROLES if DECIDE in sets.of_role(role)],
        team_roles=[role for role in permissions.TEAM_ROLES if DECIDE in sets.of_team_role(role)],
        limit=_LOOKED_AT,
    )
    deciding = (member for member in found if _decides(by, team, member))
    return list(islice(deciding, policy.LETTERS_MAX))


def _decides(by: Requester, team: Team, member: WithRoles) -> bool:
    holder = role_holders.of_member(by.db, team.org_id, member.user_id)
    return holder is not None and holder.rights.has(DECIDE, team.place)


def place_approved(by: Requester, approval: Approval, *, request_id: str) -> Instance:
    """The instance of an approved order, placed for whoever asked for it.

    Checked as when it is ordered, but for policy and budget: Invalid for what is wrong with it now,
    StateConflict where it has no project any more, or its requester no right.
    """
    project = _project(by, approval)
    _check_requester(by, approval)
    actor_kind = _actor_kind(by, approval)
    instance = place(replace(by, requested_by=approval.requested_by), project, approval.order)
    audit.append(
        by.db,
        approval.org_id,
        "instance.create",
        actor_kind=actor_kind,
        actor_id=approval.requested_by,
        target=instance.id,
        request_id=request_id,
        detail={**approval.order, "approval": approval.id},
    )
    return instance


def _project(by: Requester, approval: Approval) -> Project:
    try:
        project = projects.fetch(by.db, by.org.id, approval.project_id, lock=True)
    except RecordNotFound:
        raise StateConflict(
            "the project of this order was deleted: deny it, and order in another project"
        ) from None
    if project.team_id != approval.team_id:
        raise StateConflict(
            "the project of this order belongs to another team now, whose policy may differ: deny"
            " it, and order again"
        )
    return project


def _check_requester(by: Requester, approval: Approval) -> None:
    """An order that waits is no way to keep a right that was taken away."""
    member = role_holders.of_member(by.db, by.org.id, approval.requester_id)
    if member is None:
        raise StateConflict(
            "whoever asked for this is no longer a member of the organization: deny it, or order it"
            " yourself"
        )
    if not member.rights.has(_ORDER, approval.place):
        raise StateConflict(
            f"whoever asked for this no longer has the permission {_ORDER} in the team: deny it, or"
            " order it yourself"
        )


def _actor_kind(by: Requester, approval: Approval) -> str:
    """What asked: the user, or a key of theirs, which was neither revoked nor suspended since.

    One that has expired was right as long as it was good for.
    """
    if approval.requested_by == approval.requester_id:
        return "user"
    try:
        key = api_keys.fetch(by.db, by.org.id, approval.requested_by)
    except RecordNotFound:
        raise StateConflict(
            "the API key that asked for this was revoked: deny it, or order it yourself"
        ) from None
    if key.suspended_at is not None:
        raise StateConflict(
            "the API key that asked for this is suspended: have that lifted, or deny the order"
        )
    return "api_key" if key.service_account_id is None else "service_account"
