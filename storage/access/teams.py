"""Teams: whose projects and instances are whose within an organization, and who is in them."""

from collections.abc import Mapping
from typing import Any, Final, NamedTuple, TypeAlias

from sqlalchemy import (
    BigInteger,
    ForeignKey,
    ForeignKeyConstraint,
    Index,
    UniqueConstraint,
    func,
    select,
)
from sqlalchemy import delete as sa_delete
from sqlalchemy.orm import Mapped, Session, mapped_column
from sqlalchemy.sql.selectable import ScalarSelect

from storage import identifiers, pages
from storage.access.memberships import Membership
from storage.access.scopes import RecordPlace
from storage.columns import Json, Owned, Record, one_of
from storage.errors import RecordNotFound, StateConflict
from storage.json_rows import JsonObject
from storage.lookups import by_key
from storage.pages import Page

ROLES: Final = ("admin", "operator", "viewer")
EVERYONE: Final = "Everyone"


class Team(Owned, Record):
    __tablename__ = "teams"
    __table_args__ = (UniqueConstraint("org_id", "slug"),)

    id: Mapped[str] = mapped_column(primary_key=True)
    org_id: Mapped[str] = mapped_column(ForeignKey("organizations.id"))
    name: Mapped[str]
    slug: Mapped[str]
    cost_centre: Mapped[str | None]
    monthly_budget_cents: Mapped[int | None] = mapped_column(BigInteger)
    # Which orders need approval; None: none of them.
    approval_policy: Mapped[dict[str, Any] | None] = mapped_column(Json)

    @property
    def place(self) -> RecordPlace:
        """What is held for the records of a team is held for the team itself."""
        return RecordPlace(self.id)

    @property
    def is_default(self) -> bool:
        return self.id == everyone_of(self.org_id)

    def change(self, values: Mapping[str, Any]) -> None:
        """Everyone keeps its name and its slug, by which people and programs know it."""
        named = {"name": self.name, "slug": self.slug}
        if self.is_default and named != {name: values.get(name, named[name]) for name in named}:
            raise StateConflict(
                "cannot change the name or the slug of the default team Everyone; its cost centre"
                " and its budget can be changed"
            )
        for member, value in values.items():
            setattr(self, member, value)

    def refuse_default(self) -> None:
        if self.is_default:
            raise StateConflict(
                "cannot delete the default team Everyone: every organization has it"
            )


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


def create(db: Session, org_id: str, values: Mapping[str, Any]) -> Team:
    team = Team(id=identifiers.new("team_"), org_id=org_id, **values)
    db.add(team)
    db.flush()
    return team


def fetch(db: Session, org_id: str, team_id: str, *, lock: bool = False) -> Team:
    """The organization's team; `lock` holds its row until the transaction ends."""
    team = by_key(db, Team, team_id, lock=lock)
    if team is None or team.org_id != org_id:
        raise RecordNotFound("team not found")
    return team


def page(db: Session, org_id: str, *, limit: int, after: str | None) -> Page[Team]:
    """The organization's teams, newest first; Everyone is as old as the organization."""
    rows = select(Team).where(Team.org_id == org_id)
    return pages.keyset(db, rows, Team.id, limit=limit, after=after)


class TeamName(NamedTuple):
    """How a team is named, and where it is charged."""

    name: str
    cost_centre: str | None


TeamNames: TypeAlias = Mapping[str, TeamName]
"""By their ids."""


def names(db: Session, org_id: str) -> TeamNames:
    """Of every team that the organization has now."""
    rows = select(Team.id, Team.name, Team.cost_centre).where(Team.org_id == org_id)
    return {team_id: TeamName(name, centre) for team_id, name, centre in db.execute(rows)}


def is_slug_taken(db: Session, org_id: str, slug: str) -> bool:
    same = select(Team.id).where(Team.org_id == org_id, Team.slug == slug)
    return db.scalar(same) is not None


def count(db: Session, org_id: str) -> int:
    """Everyone included."""
    return db.scalars(select(func.count()).select_from(Team).where(Team.org_id == org_id)).one()


def delete(db: Session, team: Team) -> None:
    """With the roles in it; nothing belongs to it any more."""
    db.execute(
        sa_delete(TeamMember).where(TeamMember.org_id == team.org_id, TeamMember.team_id == team.id)
    )
    db.delete(team)
    db.flush()


def owning_team() -> Mapped[str]:
    """The column of a record that belongs to a team: Everyone, unless another is given."""
    # SQLite adds no column to a table that is NOT NULL and refers to another. Null is nobody's.
    return mapped_column(ForeignKey("teams.id"), default=_everyone, nullable=True)


def _everyone(context: Any) -> str:
    return everyone_of(context.get_current_parameters()["org_id"])


def roles_of_member() -> ScalarSelect[Any]:
    """The roles in teams of the membership of an outer query, by the ids of the teams."""
    return (
        select(JsonObject(TeamMember.team_id, TeamMember.role))
        .where(TeamMember.org_id == Membership.org_id, TeamMember.user_id == Membership.user_id)
        .correlate(Membership)
        .scalar_subquery()
    )
