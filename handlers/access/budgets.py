"""Budgets: what a team spends in the month, and of which budget."""

from typing import Any

from control.billing import charges
from control.policy.months import month_of
from handlers.access import views
from handlers.calls import OrgCall
from storage.access.teams import Team
from storage.instances import of_teams

Body = dict[str, Any]


def get(call: OrgCall, team: Team) -> Body:
    month, book = month_of(call.now), call.services.settings.prices
    spent = charges.of_teams(call.db, book, [team.id], month, call.now)[team.id]
    live = of_teams.live(call.db, call.org.id, team.id)
    return views.budget(team, book.currency, month, spent, live, call.now)
