"""Teams: whose projects and instances are whose within an organization, and who is in them."""

from typing import Any, Final, TypeAlias

from sqlalchemy import ForeignKey, ForeignKeyConstraint, Index, Select, UniqueConstraint, select
from sqlalchemy.ext.compiler import compiles
from sqlalchemy.orm import InstrumentedAttribute, Mapped, Session, mapped_column
from sqlalchemy.sql.compiler import SQLCompiler
from sqlalchemy.sql.functions import FunctionElement
from sqlalchemy.sql.selectable import ScalarSelect

from storage.access.memberships import Membership
from storage.columns import Json, Owned, Record, one_of

ROLES: Final = ("admin", "operator", "viewer")
EVERYONE: Final = "Everyone"

Teams: TypeAlias = frozenset[str] | None
"""Whose records are meant, by the ids of teams; None: every team's."""


class Team(Owned, Record):
    __tablename__ = "teams"
    __table_args__ = (UniqueConstraint("org_id", "slug"),)

    id: Mapped[str] = mapped_column(primary_key=True)
    org_id: Mapped[str] = mapped_column(ForeignKey("organizations.id"))
    name: Mapped[str]
    slug: Mapped[str]


class TeamMember(Owned, Record):
    """A member's role in a team; it ends with the membership in the organization."""

    __tablename__ = "team_members"
    __table_args__ = (
        one_of("role", ROLES),
        ForeignKeyConstraint(
            ["org_id", "user_id"],
            ["memberships.org_id", "memberships.user_id"],
            ondelete="CASCADE",
        ),
        Index(None, "org_id", "user_id"),
    )

    team_id: Mapped[str] = mapped_column(ForeignKey("teams.id"), primary_key=True)
    user_id: Mapped[str] = mapped_column(primary_key=True)
    org_id: Mapped[str]
    role: Mapped[str]


def everyone_of(org_id: str) -> str:
    """The id of the organization's team Everyone, which never changes: no query needs to ask."""
    return f"team_{org_id.removeprefix('org_')}"


def found(db: Session, org_id: str) -> Team:
    """The team that a new organization has from the beginning."""
    team = Team(id=everyone_of(org_id), org_id=org_id, name=EVERYONE, slug=EVERYONE.lower())
    db.add(team)
    db.flush()
    return team


def roles_of(db: Session, membership: Membership) -> dict[str, str]:
    """The member's roles in teams, by the ids of the teams."""
    rows = select(TeamMember.team_id, TeamMember.role).where(
        TeamMember.org_id == membership.org_id, TeamMember.user_id == membership.user_id
    )
    return dict(db.execute(rows).tuples().all())


def owning_team() -> Mapped[str]:
    """The column of a record that belongs to a team: Everyone, unless another is given."""
    # SQLite adds no column to a table that is NOT NULL and refers to another. Null is nobody's.
    return mapped_column(ForeignKey("teams.id"), default=_everyone, nullable=True)


def _everyone(context: Any) -> str:
    return everyone_of(context.get_current_parameters()["org_id"])


def of_teams(rows: Select[Any], column: InstrumentedAttribute[str], teams: Teams) -> Select[Any]:
    """Only the rows of records that belong to one of the teams."""
    return rows if teams is None else rows.where(column.in_(teams))


class _JsonObject(FunctionElement[Any]):
    """Of the names and values of all rows; null or empty where there is none."""

    name = "json_object_of_rows"
    type = Json
    inherit_cache = True


@compiles(_JsonObject, "sqlite")
def _sqlite_object(element: _JsonObject, compiler: SQLCompiler, **options: Any) -> str:
    return f"json_group_object({compiler.process(element.clauses, **options)})"


@compiles(_JsonObject, "postgresql")
def _postgresql_object(element: _JsonObject, compiler: SQLCompiler, **options: Any) -> str:
    return f"jsonb_object_agg({compiler.process(element.clauses, **options)})"


def roles_of_member() -> ScalarSelect[Any]:
    """The roles in teams of the membership of an outer query, by the ids of the teams."""
    return (
        select(_JsonObject(TeamMember.team_id, TeamMember.role))
        .where(TeamMember.org_id == Membership.org_id, TeamMember.user_id == Membership.user_id)
        .correlate(Membership)
        .scalar_subquery()
    )
