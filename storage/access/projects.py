"""Projects: how an organization groups its instances."""

from sqlalchemy import ForeignKey, UniqueConstraint, func, select
from sqlalchemy.orm import Mapped, Session, mapped_column

from storage import identifiers, pages
from storage.access.scopes import RecordPlace, Within, within
from storage.access.teams import owning_team
from storage.columns import Owned, Record
from storage.errors import RecordNotFound
from storage.lookups import by_key
from storage.pages import Page


class Project(Owned, Record):
    __tablename__ = "projects"
    __table_args__ = (UniqueConstraint("org_id", "slug"),)

    id: Mapped[str] = mapped_column(primary_key=True)
    org_id: Mapped[str] = mapped_column(ForeignKey("organizations.id"))
    team_id: Mapped[str] = owning_team()
    name: Mapped[str]
    slug: Mapped[str]

    @property
    def place(self) -> RecordPlace:
        return RecordPlace(self.team_id, self.id)


def create(
    db: Session, org_id: str, *, name: str, slug: str, team_id: str | None = None
) -> Project:
    """Of the team Everyone, unless another is given."""
    values = {} if team_id is None else {"team_id": team_id}
    project = Project(id=identifiers.new("proj_"), org_id=org_id, name=name, slug=slug, **values)
    db.add(project)
    db.flush()
    return project


def fetch(db: Session, org_id: str, project_id: str, *, lock: bool = False) -> Project:
    """The organization's project; `lock` holds its row until the transaction ends."""
    project = by_key(db, Project, project_id, lock=lock)
    if project is None or project.org_id != org_id:
        raise RecordNotFound("project not found")
    return project


def page(
    db: Session, org_id: str, *, scope: Within, limit: int, after: str | None
) -> Page[Project]:
    """The organization's projects that are in the scope, newest first."""
    rows = select(Project).where(Project.org_id == org_id)
    rows = within(rows, scope, team=Project.team_id, project=Project.id)
    return pages.keyset(db, rows, Project.id, limit=limit, after=after)


def first(db: Session, org_id: str) -> Project | None:
    """The organization's oldest project."""
    rows = select(Project).where(Project.org_id == org_id).order_by(Project.id)
    return db.scalars(rows.limit(1)).one_or_none()


def is_slug_taken(db: Session, org_id: str, slug: str) -> bool:
    same = select(Project.id).where(Project.org_id == org_id, Project.slug == slug)
    return db.scalar(same) is not None


def count(db: Session, org_id: str, *, team_id: str | None = None) -> int:
    """The organization's; with `team_id`, those that belong to this team."""
    rows = select(func.count()).select_from(Project).where(Project.org_id == org_id)
    if team_id is not None:
        rows = rows.where(Project.team_id == team_id)
    return db.scalars(rows).one()
