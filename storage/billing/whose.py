"""Whose usage is summed up: an organization's, or what of it somebody may see; or of some teams."""

from collections.abc import Collection
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Select, or_
from sqlalchemy.orm import InstrumentedAttribute

from storage.access.scopes import Within
from storage.instances.instances import Instance


@dataclass(frozen=True)
class Whose:
    """`team_ids` may be of several organizations; a `scope` is of what belongs to teams."""

    org_id: str | None = None
    team_ids: Collection[str] | None = None
    scope: Within = None

    @property
    def is_whole(self) -> bool:
        """Whether what belongs to the organization itself, and to no team, is part of it."""
        return self.team_ids is None and self.scope is None

    def of(
        self,
        rows: Select[*tuple[Any, ...]],
        *,
        org: InstrumentedAttribute[str],
        team: InstrumentedAttribute[str | None],
        instance: InstrumentedAttribute[str],
    ) -> Select[*tuple[Any, ...]]:
        """Only the rows that are meant; the query has joined the instances."""
        if self.org_id is not None:
            rows = rows.where(org == self.org_id)
        if self.team_ids is not None:
            rows = rows.where(team.in_(self.team_ids))
        if self.scope is not None:
            rows = rows.where(
                or_(
                    team.in_(self.scope.teams),
                    Instance.project_id.in_(self.scope.projects),
                    instance.in_(self.scope.instances),
                )
            )
        return rows
