"""Where a record belongs within its organization, and which of its records a list is to show."""

from dataclasses import dataclass
from typing import Any, NamedTuple, TypeAlias

from sqlalchemy import Select, or_
from sqlalchemy.orm import InstrumentedAttribute


class RecordPlace(NamedTuple):
    """The team that a record belongs to, and the project and the instance that it is of, if any."""

    team_id: str
    project_id: str | None = None
    instance_id: str | None = None

    @property
    def of_project(self) -> "RecordPlace":
        """Without the instance: where others like it are made."""
        return self._replace(instance_id=None)


@dataclass(frozen=True)
class Scope:
    """What belongs to one of these teams, or is of one of these projects or instances."""

    teams: frozenset[str] = frozenset()
    projects: frozenset[str] = frozenset()
    instances: frozenset[str] = frozenset()


NOWHERE = Scope()
Within: TypeAlias = Scope | None
"""Whose records are meant; None: all of the organization's."""


def within(
    rows: Select[Any],
    scope: Within,
    *,
    team: InstrumentedAttribute[str],
    project: InstrumentedAttribute[Any],
    instance: InstrumentedAttribute[str] | None = None,
) -> Select[Any]:
    """Only the rows of records that are in the scope, by the columns that say where they belong."""
    if scope is None:
        return rows
    where = team.in_(scope.teams), project.in_(scope.projects)
    if instance is None:
        return rows.where(or_(*where))
    return rows.where(or_(*where, instance.in_(scope.instances)))
