"""Instances that are in a scope: what those see who do not see all of an organization."""

from typing import Any

from sqlalchemy import Select, select
from sqlalchemy.orm import Session

from storage.access.scopes import Within, within
from storage.instances.instances import HOSTED, LIVE, Instance


def ids(org_id: str, scope: Within) -> Select[Any]:
    """A query for the ids of the organization's instances that are in the scope."""
    return _within(select(Instance.id).where(Instance.org_id == org_id), scope)


def live(db: Session, org_id: str, *, scope: Within) -> list[Instance]:
    """Every wanted instance of the organization that is in the scope, oldest first."""
    rows = select(Instance).where(Instance.org_id == org_id, HOSTED, LIVE)
    return list(db.scalars(_within(rows, scope).order_by(Instance.id)))


def _within(rows: Select[Any], scope: Within) -> Select[Any]:
    return within(
        rows, scope, team=Instance.team_id, project=Instance.project_id, instance=Instance.id
    )
