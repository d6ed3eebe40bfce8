"""Who has a role in a project alone, beside what they hold in its team."""

from datetime import datetime
from typing import Any, Final, NamedTuple

from sqlalchemy import (
    ForeignKey,
    ForeignKeyConstraint,
    Index,
    Select,
    UniqueConstraint,
    select,
)
from sqlalchemy import delete as sa_delete
from sqlalchemy.orm import Mapped, Session, mapped_column
from sqlalchemy.sql.selectable import ScalarSelect

from storage import identifiers, pages
from storage.access.memberships import Membership
from storage.access.projects import Project
from storage.access.scopes import Within, within
from storage.access.users import User
from storage.columns import Owned, Record, one_of
from storage.errors import RecordNotFound
from storage.json_rows import JsonObject
from storage.pages import Page

ROLES: Final = ("admin", "developer", "viewer")


class ProjectMember(Owned, Record):
    """A member's role in a project; it ends with the membership and with the project."""

    __tablename__ = "project_members"
    __table_args__ = (
        one_of("role", ROLES),
        ForeignKeyConstraint(
            ["org_id", "user_id"],
            ["memberships.org_id", "memberships.user_id"],
            ondelete="CASCADE",
        ),
        UniqueConstraint("project_id", "user_id"),
        Index(None, "org_id", "user_id"),
    )

    id: Mapped[str] = mapped_column(primary_key=True)
    project_id: Mapped[str] = mapped_column(ForeignKey("projects.id", ondelete="CASCADE"))
    user_id: Mapped[str]
    org_id: Mapped[str]
    role: Mapped[str]


class InProject(NamedTuple):
    """Somebody with a role in a project."""

    id: str
    project_id: str
    user_id: str
    email: str
    name: str
    role: str
    created_at: datetime


def page(db: Session, project: Project, *, limit: int, after: str | None) -> Page[InProject]:
    """Those with a role in the project, newest first."""
    rows = _rows(project.org_id).where(ProjectMember.project_id == project.id)
    return _page(db, rows, limit, after)


def page_of_org(
    db: Session, org_id: str, *, scope: Within, limit: int, after: str | None
) -> Page[InProject]:
    """Those with a role in a project that is in the scope, newest first."""
    rows = within(_rows(org_id), scope, team=Project.team_id, project=Project.id)
    return _page(db, rows, limit, after)


def fetch(db: Session, project: Project, user_id: str) -> InProject:
    rows = _rows(project.org_id).where(
        ProjectMember.project_id == project.id, ProjectMember.user_id == user_id
    )
    row = db.execute(rows).one_or_none()
    if row is None:
        raise RecordNotFound("the user has no role in the project")
    return InProject(*row)


def find_role(db: Session, project: Project, user_id: str) -> str | None:
    rows = select(ProjectMember.role).where(
        ProjectMember.org_id == project.org_id,
        ProjectMember.project_id == project.id,
        ProjectMember.user_id == user_id,
    )
    return db.scalar(rows)


def put(db: Session, project: Project, user_id: str, role: str) -> InProject:
    """With this role, in place of the one they had."""
    same = select(ProjectMember).where(
        ProjectMember.org_id == project.org_id,
        ProjectMember.project_id == project.id,
        ProjectMember.user_id == user_id,
    )
    known = db.scalars(same.with_for_update()).one_or_none()
    if known is None:
        ids = {"project_id": project.id, "user_id": user_id, "org_id": project.org_id}
        db.add(ProjectMember(id=identifiers.new("pmr_"), **ids, role=role))
    else:
        known.role = role
    db.flush()
    return fetch(db, project, user_id)


def remove(db: Session, project: Project, user_id: str | None = None) -> None:
    """The user's role in the project; without a user, all that there are."""
    rows = sa_delete(ProjectMember).where(
        ProjectMember.org_id == project.org_id, ProjectMember.project_id == project.id
    )
    db.execute(rows if user_id is None else rows.where(ProjectMember.user_id == user_id))


def roles_of_member() -> ScalarSelect[Any]:
    """The roles in projects of the membership of an outer query, by the ids of the projects."""
    return (
        select(JsonObject(ProjectMember.project_id, ProjectMember.role))
        .where(
            ProjectMember.org_id == Membership.org_id, ProjectMember.user_id == Membership.user_id
        )
        .correlate(Membership)
        .scalar_subquery()
    )


def _rows(org_id: str) -> Select[*tuple[Any, ...]]:
    who = ProjectMember.user_id, User.email, User.name
    of = ProjectMember.id, ProjectMember.project_id
    rows: Select[*tuple[Any, ...]] = select(*of, *who, ProjectMember.role, ProjectMember.created_at)
    rows = rows.join(User, User.id == ProjectMember.user_id)
    rows = rows.join(Project, Project.id == ProjectMember.project_id)
    return rows.where(ProjectMember.org_id == org_id)


def _page(
    db: Session, rows: Select[*tuple[Any, ...]], limit: int, after: str | None
) -> Page[InProject]:
    if after is not None:
        rows = rows.where(ProjectMember.id < after)
    rows = rows.order_by(ProjectMember.id.desc()).limit(limit + 1)
    return pages.cut([InProject(*row) for row in db.execute(rows)], "id", limit)
