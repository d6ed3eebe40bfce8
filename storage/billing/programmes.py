"""Applications for credit programs, which the operator decides.

Of each program an organization has one application at most that is pending or approved; the
database holds that.
"""

from datetime import datetime
from typing import Any, Final

from sqlalchemy import ForeignKey, Index, select, text
from sqlalchemy.orm import Mapped, Session, mapped_column

from storage import identifiers, pages
from storage.columns import Owned, Record, one_of
from storage.errors import RecordNotFound, StateConflict
from storage.lookups import by_key
from storage.pages import Page

STATUSES: Final = ("pending", "approved", "declined")
_IN_FORCE: Final = text("status IN ('pending', 'approved')")


class ProgrammeApplication(Owned, Record):
    """What an organization says of itself, and what came of it."""

    __tablename__ = "programme_applications"
    __table_args__ = (
        one_of("status", STATUSES),
        Index(None, "org_id", "id"),
        Index(None, "status", "id"),
        Index(
            "ix_programme_applications_in_force",
            *("org_id", "programme"),
            unique=True,
            postgresql_where=_IN_FORCE,
            sqlite_where=_IN_FORCE,
        ),
    )

    id: Mapped[str] = mapped_column(primary_key=True)
    org_id: Mapped[str] = mapped_column(ForeignKey("organizations.id"))
    programme: Mapped[str]
    status: Mapped[str] = mapped_column(default="pending")
    applicant_id: Mapped[str] = mapped_column(ForeignKey("users.id"))
    website: Mapped[str | None]
    statement: Mapped[str]
    note: Mapped[str | None]
    decided_at: Mapped[datetime | None]
    credit_id: Mapped[str | None] = mapped_column(ForeignKey("credits.id"))

    def decide(self, status: str, at: datetime, note: str | None) -> None:
        """Once. Raises StateConflict for one that is decided."""
        if self.status != "pending":
            raise StateConflict(f"the application {self.id} is {self.status} already")
        self.status, self.decided_at, self.note = status, at, note


def create(db: Session, org_id: str, **values: Any) -> ProgrammeApplication:
    """The database refuses a second one of the program that is pending or approved."""
    made = ProgrammeApplication(id=identifiers.new("papp_"), org_id=org_id, **values)
    db.add(made)
    db.flush()
    return made


def page(db: Session, org_id: str, *, limit: int, after: str | None) -> Page[ProgrammeApplication]:
    """The organization's, newest first."""
    rows = select(ProgrammeApplication).where(ProgrammeApplication.org_id == org_id)
    return pages.keyset(db, rows, ProgrammeApplication.id, limit=limit, after=after)


def latest(db: Session, org_id: str, programme: str) -> ProgrammeApplication | None:
    """The organization's newest application for the program."""
    one = ProgrammeApplication
    rows = select(one).where(one.org_id == org_id, one.programme == programme)
    return db.scalars(rows.order_by(one.id.desc()).limit(1)).one_or_none()


def everybodys(
    db: Session, status: str | None, *, limit: int, after: str | None = None
) -> list[ProgrammeApplication]:
    """For the operator: those of all organizations, oldest first."""
    rows = select(ProgrammeApplication)
    if status is not None:
        rows = rows.where(ProgrammeApplication.status == status)
    if after is not None:
        rows = rows.where(ProgrammeApplication.id > after)
    return list(db.scalars(rows.order_by(ProgrammeApplication.id).limit(limit)))


def hold(db: Session, application_id: str) -> ProgrammeApplication:
    """For the operator: held until the commit. Raises RecordNotFound."""
    found = by_key(db, ProgrammeApplication, application_id, lock=True)
    if found is None:
        raise RecordNotFound(f"there is no application {application_id}")
    return found
