"""Roles that an organization made, and who has them: in the whole organization or in a team."""

from collections.abc import Collection
from typing import Any

from sqlalchemy import ForeignKey, ForeignKeyConstraint, Index, UniqueConstraint, func, select
from sqlalchemy import delete as sa_delete
from sqlalchemy.orm import Mapped, Session, mapped_column
from sqlalchemy.sql.selectable import ScalarSelect

from storage import identifiers, pages
from storage.access.memberships import Membership
from storage.columns import Json, Owned, Record
from storage.errors import RecordNotFound
from storage.json_rows import JsonArray, JsonObject
from storage.lookups import by_key
from storage.pages import Page

ALL_OF_IT = "org"
"""In place of the id of a team, where a role is given in the whole organization."""


class CustomRole(Owned, Record):
    """A named set of permissions, which does not change."""

    __tablename__ = "custom_roles"
    __table_args__ = (UniqueConstraint("org_id", "name"),)

    id: Mapped[str] = mapped_column(primary_key=True)
    org_id: Mapped[str] = mapped_column(ForeignKey("organizations.id"))
    name: Mapped[str]
    permissions: Mapped[list[str]] = mapped_column(Json)
    created_by: Mapped[str]


class RoleAssignment(Owned, Record):
    """A custom role of a member; it ends with the role, the team, and the membership."""

    __tablename__ = "role_assignments"
    __table_args__ = (
        ForeignKeyConstraint(
            ["org_id", "user_id"],
            ["memberships.org_id", "memberships.user_id"],
            ondelete="CASCADE",
        ),
        UniqueConstraint("role_id", "user_id", "within"),
        Index(None, "org_id", "user_id"),
    )

    id: Mapped[str] = mapped_column(primary_key=True)
    org_id: Mapped[str]
    role_id: Mapped[str] = mapped_column(ForeignKey("custom_roles.id", ondelete="CASCADE"))
    user_id: Mapped[str]
    # Null where it holds in the whole organization; `within` says the same without a null, of
    # which a unique constraint lets any number in.
    team_id: Mapped[str | None] = mapped_column(ForeignKey("teams.id", ondelete="CASCADE"))
    within: Mapped[str]
    created_by: Mapped[str]


def create(
    db: Session, org_id: str, *, name: str, permissions: Collection[str], created_by: str
) -> CustomRole:
    role = CustomRole(
        id=identifiers.new("role_"),
        org_id=org_id,
        name=name,
        permissions=sorted(permissions),
        created_by=created_by,
    )
    db.add(role)
    db.flush()
    return role


def fetch(db: Session, org_id: str, role_id: str, *, lock: bool = False) -> CustomRole:
    """The organization's; `lock` holds its row until the transaction ends."""
    role = by_key(db, CustomRole, role_id, lock=lock)
    if role is None or role.org_id != org_id:
        raise RecordNotFound("role not found")
    return role


def find(db: Session, org_id: str, role_id: str) -> CustomRole | None:
    """The organization's of that id, if there is one."""
    role = by_key(db, CustomRole, role_id)
    return None if role is None or role.org_id != org_id else role


def page(db: Session, org_id: str, *, limit: int, after: str | None) -> Page[CustomRole]:
    """The organization's, newest first."""
    rows = select(CustomRole).where(CustomRole.org_id == org_id)
    return pages.keyset(db, rows, CustomRole.id, limit=limit, after=after)


def count(db: Session, org_id: str) -> int:
    rows = select(func.count()).select_from(CustomRole).where(CustomRole.org_id == org_id)
    return db.scalars(rows).one()


def names(db: Session, org_id: str, role_ids: Collection[str]) -> dict[str, str]:
    """The names of the organization's roles of these ids, by the ids."""
    rows = select(CustomRole.id, CustomRole.name).where(
        CustomRole.org_id == org_id, CustomRole.id.in_(role_ids)
    )
    return dict(db.execute(rows).tuples().all())


def delete(db: Session, role: CustomRole) -> int:
    """With its assignments; how many there were."""
    rows = sa_delete(RoleAssignment).where(
        RoleAssignment.org_id == role.org_id, RoleAssignment.role_id == role.id
    )
    ended = len(db.execute(rows.returning(RoleAssignment.id)).all())
    db.delete(role)
    db.flush()
    return ended


def assign(
    db: Session, role: CustomRole, user_id: str, team_id: str | None, *, created_by: str
) -> RoleAssignment:
    assignment = RoleAssignment(
        id=identifiers.new("asg_"),
        org_id=role.org_id,
        role_id=role.id,
        user_id=user_id,
        team_id=team_id,
        within=team_id or ALL_OF_IT,
        created_by=created_by,
    )
    db.add(assignment)
    db.flush()
    return assignment


def fetch_assignment(
    db: Session, role: CustomRole, assignment_id: str, *, lock: bool = False
) -> RoleAssignment:
    found = by_key(db, RoleAssignment, assignment_id, lock=lock)
    if found is None or found.role_id != role.id or found.org_id != role.org_id:
        raise RecordNotFound("role assignment not found")
    return found


def assignments(
    db: Session, role: CustomRole, *, limit: int, after: str | None
) -> Page[RoleAssignment]:
    """Those of the role, newest first."""
    rows = select(RoleAssignment).where(
        RoleAssignment.org_id == role.org_id, RoleAssignment.role_id == role.id
    )
    return pages.keyset(db, rows, RoleAssignment.id, limit=limit, after=after)


def count_assignments(db: Session, org_id: str) -> int:
    rows = select(func.count()).select_from(RoleAssignment).where(RoleAssignment.org_id == org_id)
    return db.scalars(rows).one()


def end_in_team(db: Session, org_id: str, team_id: str) -> None:
    """Before the team is deleted."""
    db.execute(
        sa_delete(RoleAssignment).where(
            RoleAssignment.org_id == org_id, RoleAssignment.team_id == team_id
        )
    )


def assigned_to_member() -> ScalarSelect[Any]:
    """Of the membership of an outer query: role, team and permissions, by the assignments' ids."""
    given = JsonArray(RoleAssignment.role_id, RoleAssignment.team_id, CustomRole.permissions)
    return (
        select(JsonObject(RoleAssignment.id, given))
        .join(CustomRole, CustomRole.id == RoleAssignment.role_id)
        .where(
            RoleAssignment.org_id == Membership.org_id,
            RoleAssignment.user_id == Membership.user_id,
        )
        .correlate(Membership)
        .scalar_subquery()
    )
