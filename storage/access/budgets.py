"""Budget notices: of which part of its budget a team has been told in which month."""

from collections.abc import Collection
from typing import Final, NamedTuple

from sqlalchemy import ForeignKey, delete, exists, or_, select
from sqlalchemy.orm import Mapped, Session, mapped_column

from storage.access.teams import Team
from storage.columns import Owned, Record
from storage.events.alerts import Alert

THRESHOLD: Final = "budget_threshold"
"""The kind of alert that is raised with a notice."""


class BudgetNotice(Owned, Record):
    """Told once, whatever becomes of the budget later in the month."""

    __tablename__ = "budget_notices"

    team_id: Mapped[str] = mapped_column(ForeignKey("teams.id"), primary_key=True)
    month: Mapped[str] = mapped_column(primary_key=True)
    percent: Mapped[int] = mapped_column(primary_key=True)
    org_id: Mapped[str] = mapped_column(ForeignKey("organizations.id"))


class Watched(NamedTuple):
    """A team with a budget, or with an alert about one that is not resolved yet."""

    team: Team
    is_alerted: bool


_IS_ALERTED: Final = exists().where(
    Alert.team_id == Team.id,
    Alert.kind == THRESHOLD,
    Alert.resolved_at.is_(None),
    Alert.instance_id.is_(None),
)


def watched(db: Session, *, limit: int, after: str) -> list[Watched]:
    """Those of every organization, by their ids."""
    rows = select(Team, _IS_ALERTED).where(
        Team.id > after, or_(Team.monthly_budget_cents.is_not(None), _IS_ALERTED)
    )
    return [Watched(*row) for row in db.execute(rows.order_by(Team.id).limit(limit))]


def told(db: Session, team_ids: Collection[str], month: str) -> dict[str, set[int]]:
    """The percentages that each of these teams has been told of in the month."""
    rows = select(BudgetNotice.team_id, BudgetNotice.percent).where(
        BudgetNotice.team_id.in_(team_ids), BudgetNotice.month == month
    )
    found: dict[str, set[int]] = {team_id: set() for team_id in team_ids}
    for team_id, percent in db.execute(rows):
        found[team_id].add(percent)
    return found


def note(db: Session, team: Team, month: str, percent: int) -> None:
    """Conflict where it was told before; whoever holds the team's row has looked."""
    db.add(BudgetNotice(team_id=team.id, month=month, percent=percent, org_id=team.org_id))
    db.flush()


def forget(db: Session, team: Team) -> None:
    """All of the team's, which is to be deleted."""
    theirs = BudgetNotice.org_id == team.org_id, BudgetNotice.team_id == team.id
    db.execute(delete(BudgetNotice).where(*theirs))
