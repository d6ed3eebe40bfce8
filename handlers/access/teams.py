"""Teams: who sees and uses which projects and instances of an organization."""

from collections.abc import Collection
from functools import partial
from typing import Any

from control.boundary import AuditedChanges
from control.policy import approvals, quotas
from control.policy.approvals import Policy
from control.policy.plans import PLANS
from control.policy.violations import refuse
from handlers import paging
from handlers.access import remaining, slugs, views
from handlers.calls import OrgCall
from specserver import Reply
from storage.access import budgets, projects, team_members, teams
from storage.access.teams import Team
from storage.errors import StateConflict
from storage.events import alerts
from storage.instances import of_teams
from storage.roles import roles

Body = dict[str, Any]
OF_THE_ORGANIZATION = frozenset({"slug", "monthly_budget_cents", "approval_policy"})
"""Members that whoever leads a team cannot set."""


def list_(call: OrgCall, limit: int, cursor: str | None = None) -> Body:
    found = teams.page(call.db, call.org.id, limit=limit, after=paging.after(call, cursor))
    members = team_members.counts(call.db, call.org.id, [team.id for team in found.items])
    return paging.page(call, found, lambda record: views.team(record, members[record.id]))


def create(call: OrgCall, body: Body) -> Reply:
    held = teams.count(call.db, call.org.id)
    refuse(quotas.check_one_more_team(PLANS[call.org.plan], held))
    slug = body.get("slug") or slugs.derive(
        body["name"], "team", lambda slug: teams.is_slug_taken(call.db, call.org.id, slug)
    )
    told = {**_checked(body, None), "slug": slug}
    team = teams.create(call.db, call.org.id, told)
    call.audit(target=team.id, detail=told)
    return Reply.created(views.team(team, 0), f"/v1/orgs/{call.org.id}/teams/{team.id}")


def get(call: OrgCall, team: Team) -> Body:
    return _shown(call, team)


def update(call: OrgCall, team: Team, body: Body) -> Body:
    call.require_for("teams:write", OF_THE_ORGANIZATION & body.keys())
    told = _checked(body, team)
    changes = AuditedChanges(partial(_settings, team, told.keys()))
    team.change(told)
    call.audit(target=team.id, detail=told, changes=changes)
    call.db.flush()
    return _shown(call, team)


def delete(call: OrgCall, team: Team) -> Reply:
    team.refuse_default()
    _refuse_while_used(call, team)
    roles.end_in_team(call.db, call.org.id, team.id)
    of_teams.leave_team(call.db, call.org.id, team.id)
    alerts.forget_team(call.db, team)
    budgets.forget(call.db, team)
    call.audit(target=team.id, detail={"name": team.name, "slug": team.slug})
    teams.delete(call.db, team)
    return Reply.no_content()


def _checked(body: Body, team: Team | None) -> Body:
    """What a team is to be, with its whole approval policy, which fits the budget it is to have."""
    known = Policy.of(team.approval_policy if team else None)
    policy = Policy.of(body["approval_policy"]) if "approval_policy" in body else known
    budget = body.get("monthly_budget_cents", team.monthly_budget_cents if team else None)
    refuse(approvals.check_policy(policy, budget))
    if "approval_policy" not in body:
        return body
    return {**body, "approval_policy": None if policy.is_never else policy.as_json()}


def _settings(team: Team, names: Collection[str]) -> Body:
    """Those of its settings, and each rule of its approval policy as one of its own."""
    found = {name: getattr(team, name) for name in names if name != "approval_policy"}
    if "approval_policy" in names:
        rules = Policy.of(team.approval_policy).as_json()
        found |= {f"approval_policy.{rule}": value for rule, value in rules.items()}
    return found


def _shown(call: OrgCall, team: Team) -> Body:
    return views.team(team, team_members.counts(call.db, call.org.id, [team.id])[team.id])


def _refuse_while_used(call: OrgCall, team: Team) -> None:
    """StateConflict that says what is in the way, and how to get it out of it."""
    count = projects.count(call.db, call.org.id, team_id=team.id)
    by_status = of_teams.count_by_status(call.db, call.org.id, team.id)
    instances = ", ".join(remaining.instances(by_status))
    reasons = {
        f"projects: {count} (delete them, or move them to another team)": count,
        f"instances: {instances}": instances,
    }
    held = [reason for reason, found in reasons.items() if found]
    if held:
        raise StateConflict(f"cannot delete a team that has {'; '.join(held)}")
