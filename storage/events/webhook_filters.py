"""What the filters of webhook endpoints name: which of it there is, and what instances are."""

from collections.abc import Collection, Mapping
from typing import Any

from sqlalchemy import select
from sqlalchemy.orm import Session

from storage.access.projects import Project
from storage.access.teams import Team
from storage.instances.instances import Instance

_RECORDS: dict[str, Any] = {"project_ids": Project, "team_ids": Team, "instance_ids": Instance}


def known(db: Session, org_id: str, filters: Mapping[str, Collection[str]]) -> dict[str, set[str]]:
    """Those of the ids that there are in the organization, by filter."""
    return {
        name: _known(db, org_id, record, filters.get(name)) for name, record in _RECORDS.items()
    }


def _known(db: Session, org_id: str, record: Any, wanted: Collection[str] | None) -> set[str]:
    if not wanted:
        return set()
    return set(db.scalars(select(record.id).where(record.org_id == org_id, record.id.in_(wanted))))


def subjects(db: Session, instance_ids: Collection[str]) -> dict[str, dict[str, str | None]]:
    """What the instances are, as filters name it."""
    rows = select(Instance.id, Instance.project_id, Instance.team_id, Instance.engine)
    names = ("instance_ids", "project_ids", "team_ids", "engines")
    found = db.execute(rows.where(Instance.id.in_(instance_ids))).tuples()
    return {row[0]: dict(zip(names, row, strict=True)) for row in found}
