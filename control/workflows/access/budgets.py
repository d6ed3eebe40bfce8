"""Budgets: teams are told, once a month each, when 50, 80 and 100 % of theirs are spent."""

from collections.abc import Collection, Sequence
from datetime import datetime
from typing import Any, Final

from sqlalchemy.orm import Session

from control.billing import charges
from control.billing.charges import Spend
from control.events import publishing
from control.policy import budgets
from control.policy.alert_kinds import BUDGET
from control.policy.months import Month, month_of
from control.policy.prices import PriceBook, amount, whole_cents
from control.work import Operation, Schedule, workflow
from storage.access import budgets as notices
from storage.access.budgets import Watched
from storage.access.teams import Team
from storage.database import now
from storage.lookups import by_key

_AT_ONCE: Final = 200
"""Teams whose sums are asked for in one query."""


@workflow("budgets.watch", deadline_s=300)
def watch(op: Operation) -> None:
    """Looks without holding anything, and then again at each team for which there is something."""
    book = op.services.settings.prices
    after, there_are_more = "", book.is_on
    while there_are_more:
        with op.database.read() as db:
            watched = notices.watched(db, limit=_AT_ONCE, after=after)
            wanting = _wanting(db, book, watched, now(db))
        for team_id in wanting:
            with op.database.write() as db:
                _tell(db, book, team_id)
        there_are_more = len(watched) == _AT_ONCE
        after = watched[-1].team.id if watched else after


def _wanting(
    db: Session, book: PriceBook, watched: Sequence[Watched], moment: datetime
) -> list[str]:
    """The ids of teams that are to be told something, or whose alert is over."""
    month = month_of(moment)
    ids = [each.team.id for each in watched]
    used = charges.of_teams(db, book, ids, month, moment)
    told = notices.told(db, ids, month.name)
    wanting = []
    for team, is_alerted in watched:
        spent = used[team.id].month_to_date
        reached = budgets.crossed(spent, team.monthly_budget_cents)
        if not told[team.id].issuperset(reached) or (
            is_alerted and _is_over(told[team.id], reached)
        ):
            wanting.append(team.id)
    return wanting


def _tell(db: Session, book: PriceBook, team_id: str) -> None:
    """Whoever holds the team's row tells; another worker finds what was told."""
    team = by_key(db, Team, team_id, lock=True)
    if team is None:
        return
    moment = now(db)
    month = month_of(moment)
    spent = charges.of_teams(db, book, [team.id], month, moment)[team.id]
    reached = budgets.crossed(spent.month_to_date, team.monthly_budget_cents)
    told = notices.told(db, [team.id], month.name)[team.id]
    if _is_over(told, reached):
        publishing.resolve(db, team, [BUDGET])
    for percent in reached:
        if percent not in told:
            notices.note(db, team, month.name, percent)
            data = _described(team, book.currency, month, spent, percent)
            publishing.publish(db, team.org_id, "budget.threshold.v1", data, team)


def _is_over(told: Collection[int], reached: Collection[int]) -> bool:
    """What an alert says: it is of last month, or the budget was raised or taken away since."""
    return not told or max(told) not in reached


def _described(
    team: Team, currency: str, month: Month, spent: Spend, percent: int
) -> dict[str, Any]:
    limit = team.monthly_budget_cents or 0
    so_far = whole_cents(spent.month_to_date)
    told = amount(so_far, currency), amount(limit, currency)
    return {
        "team_id": team.id,
        "month": month.name,
        "threshold_percent": percent,
        "currency": currency,
        "month_to_date_cents": so_far,
        "forecast_cents": whole_cents(spent.forecast),
        "monthly_budget_cents": limit,
        "reason": f"{told[0]} of {told[1]} are spent in {month.name}",
    }


SCHEDULE: Final = Schedule("budgets", watch, every_s=300)
