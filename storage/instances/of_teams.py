"""What is asked of all instances of a team."""

from typing import NamedTuple

from sqlalchemy import func, select, update
from sqlalchemy.orm import Session

from storage.instances.instances import HOSTED, LIVE, Instance, hosted_by_status


def count_by_status(db: Session, org_id: str, team_id: str) -> dict[str, int]:
    """How many instances of the team there are in each status but erased."""
    return hosted_by_status(db, org_id, Instance.team_id == team_id)


class Live(NamedTuple):
    """The instances of a team that are wanted, and their storage together."""

    instances: int
    storage_bytes: int


def live(db: Session, org_id: str, team_id: str) -> Live:
    theirs = Instance.org_id == org_id, Instance.team_id == team_id
    held = func.coalesce(func.sum(Instance.storage_bytes), 0)
    count, storage_bytes = db.execute(select(func.count(), held).where(*theirs, HOSTED, LIVE)).one()
    return Live(count, int(storage_bytes))


def follow_project(db: Session, org_id: str, project_id: str, team_id: str) -> None:
    """The instances of the project belong to the team that it belongs to now."""
    theirs = Instance.org_id == org_id, Instance.project_id == project_id
    db.execute(update(Instance).where(*theirs).values(team_id=team_id))


def leave_team(db: Session, org_id: str, team_id: str) -> None:
    """Take the erased instances out of their team, which is to be deleted."""
    theirs = Instance.org_id == org_id, Instance.team_id == team_id
    db.execute(update(Instance).where(*theirs, Instance.status == "erased").values(team_id=None))
