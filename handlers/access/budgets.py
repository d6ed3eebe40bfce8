"""Budgets: what a team spends in the month, and of which budget."""

from typing import Any

from control.policy import budgets
from handlers.access import views
from handlers.calls import OrgCall
from storage.access.teams import Team
from storage.instances import of_teams, spans

Body = dict[str, Any]


def get(call: OrgCall, team: Team) -> Body:
    month = budgets.month_of(call.now)
    used = spans.usage(call.db, [team.id], since=month.begin, until=call.now)
    spent = budgets.spend(month, used[team.id], call.now)
    live = of_teams.live(call.db, call.org.id, team.id)
    return views.budget(team, month, spent, live, call.now)
