"""Invoice runs: how far the invoices of each month are made."""

from sqlalchemy import select
from sqlalchemy.orm import Mapped, Session, mapped_column

from storage.access.organizations import Organization
from storage.columns import Record
from storage.lookups import by_key


class InvoiceRun(Record):
    """How far the invoices of a month are made: of all organizations up to the id `after`."""

    __tablename__ = "invoice_runs"

    month: Mapped[str] = mapped_column(primary_key=True)
    after: Mapped[str]
    is_done: Mapped[bool]


def hold(db: Session, month: str) -> InvoiceRun:
    """How far the month is, held until the commit: whoever makes its invoices takes turns."""
    found = by_key(db, InvoiceRun, month, lock=True)
    if found is None:
        found = InvoiceRun(month=month, after="", is_done=False)
        db.add(found)
        db.flush()
    return found


def find(db: Session, month: str) -> InvoiceRun | None:
    return by_key(db, InvoiceRun, month)


def next_org(db: Session, after: str) -> Organization | None:
    """The organization that follows, by its id, whether open or closed."""
    rows = select(Organization).where(Organization.id > after).order_by(Organization.id)
    return db.scalars(rows.limit(1)).one_or_none()
