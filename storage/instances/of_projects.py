"""What is asked of all instances of a project."""

from sqlalchemy import select, update
from sqlalchemy.orm import Session

from storage.instances.instances import HOSTED, LIVE, Instance, hosted_by_status


def count_by_status(db: Session, org_id: str, project_id: str) -> dict[str, int]:
    """How many instances of the project there are in each status but erased."""
    return hosted_by_status(db, org_id, Instance.project_id == project_id)


def is_name_taken(db: Session, project_id: str, name: str) -> bool:
    """Whether a wanted instance of the project has the name already."""
    same = select(Instance.id).where(Instance.project_id == project_id, Instance.name == name)
    return db.scalar(same.where(LIVE).limit(1)) is not None


def has_any(db: Session, org_id: str, project_id: str) -> bool:
    """Whether the project has an instance that can be had, or had back."""
    rows = select(Instance.id).where(Instance.org_id == org_id, Instance.project_id == project_id)
    return db.scalar(rows.where(HOSTED).limit(1)) is not None


def leave_project(db: Session, org_id: str, project_id: str) -> None:
    """Take the erased instances out of their project, which is to be deleted."""
    db.execute(
        update(Instance)
        .where(
            Instance.org_id == org_id,
            Instance.project_id == project_id,
            Instance.status == "erased",
        )
        .values(project_id=None)
    )
