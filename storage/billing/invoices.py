"""Invoices: made once for an organization and month, with numbers without gaps, and then kept.

Only what becomes of one changes: it is paid, or void. The database refuses everything else
(migration 202611301530).
"""

from datetime import datetime
from typing import Any, Final

from sqlalchemy import BigInteger, ForeignKey, Index, LargeBinary, UniqueConstraint, select
from sqlalchemy.orm import Mapped, Session, mapped_column

from storage import identifiers, pages, tenancy
from storage.columns import Json, Owned, Record, one_of
from storage.errors import RecordNotFound, StateConflict
from storage.lookups import by_key
from storage.pages import Page

STATUSES: Final = ("open", "paid", "void")


class Invoice(Owned, Record):
    """All of it is as it was when it was made, the names and addresses of both sides too.

    Amounts are in cents, `tax_rate` in hundredths of a percent. `total_cents` is the subtotal
    without credits, with tax. `month` is as in 2026-11.
    """

    __tablename__ = "invoices"
    __table_args__ = (
        one_of("status", STATUSES),
        UniqueConstraint("org_id", "month"),
        Index(None, "org_id", "id"),
        Index(None, "month", "id"),
    )

    id: Mapped[str] = mapped_column(primary_key=True)
    org_id: Mapped[str] = mapped_column(ForeignKey("organizations.id"))
    month: Mapped[str]
    number: Mapped[str] = mapped_column(unique=True)
    currency: Mapped[str]
    lines: Mapped[list[dict[str, Any]]] = mapped_column(Json)
    credits: Mapped[list[dict[str, Any]]] = mapped_column(Json)
    subtotal_cents: Mapped[int] = mapped_column(BigInteger)
    credits_cents: Mapped[int] = mapped_column(BigInteger)
    tax_category: Mapped[str]
    tax_rate: Mapped[int]
    tax_reason: Mapped[str | None]
    tax_cents: Mapped[int] = mapped_column(BigInteger)
    total_cents: Mapped[int] = mapped_column(BigInteger)
    issuer: Mapped[dict[str, str]] = mapped_column(Json)
    customer: Mapped[dict[str, str]] = mapped_column(Json)
    issued_at: Mapped[datetime]
    due_at: Mapped[datetime]
    status: Mapped[str]
    paid_at: Mapped[datetime | None]
    voided_at: Mapped[datetime | None]
    void_reason: Mapped[str | None]

    def status_at(self, now: datetime) -> str:
        """`overdue` is what is open and was due before that moment."""
        return "overdue" if self.status == "open" and self.due_at <= now else self.status

    def pay(self, at: datetime) -> None:
        self._end("paid")
        self.paid_at = at

    def void(self, at: datetime, reason: str) -> None:
        self._end("void")
        self.voided_at, self.void_reason = at, reason

    def _end(self, status: str) -> None:
        if self.status != "open":
            raise StateConflict(f"the invoice {self.number} is {self.status}, and stays so")
        self.status = status


class InvoiceDocument(Owned, Record):
    """An invoice as PDF with its XML, as it was sent."""

    __tablename__ = "invoice_documents"

    invoice_id: Mapped[str] = mapped_column(ForeignKey("invoices.id"), primary_key=True)
    org_id: Mapped[str] = mapped_column(ForeignKey("organizations.id"))
    pdf: Mapped[bytes] = mapped_column(LargeBinary)


class InvoiceNumber(Record):
    """The last number of a series that was given, to an invoice that was made with it."""

    __tablename__ = "invoice_numbers"

    series: Mapped[str] = mapped_column(primary_key=True)
    last: Mapped[int]


def create(db: Session, series: str, **values: Any) -> Invoice:
    """With the next number of the series, which nobody else is given until the commit.

    The database refuses a second one of the organization and month.
    """
    counter = by_key(db, InvoiceNumber, series, lock=True)
    if counter is None:
        counter = InvoiceNumber(series=series, last=0)
        db.add(counter)
    counter.last += 1
    made = Invoice(number=f"{series}-{counter.last:06}", **values)
    db.add(made)
    db.flush()
    return made


def new_id() -> str:
    return identifiers.new("invoice_")


def page(db: Session, org_id: str, *, limit: int, after: str | None) -> Page[Invoice]:
    """The organization's, newest first."""
    rows = select(Invoice).where(Invoice.org_id == org_id)
    return pages.keyset(db, rows, Invoice.id, limit=limit, after=after)


def find(db: Session, org_id: str, month: str) -> Invoice | None:
    """That of the organization and month, whatever became of it."""
    rows = select(Invoice).where(Invoice.org_id == org_id, Invoice.month == month)
    return db.scalars(rows).one_or_none()


def of_link(db: Session, invoice_id: str) -> Invoice:
    """For whoever has a signed link to it. Raises RecordNotFound."""
    with tenancy.across(db, "who has a signed link sees this invoice, of whatever organization"):
        found = by_key(db, Invoice, invoice_id)
    if found is None:
        raise RecordNotFound("invoice not found")
    return found


def document_of_link(db: Session, invoice_id: str) -> InvoiceDocument:
    """As `of_link`."""
    with tenancy.across(db, "who has a signed link sees this invoice, of whatever organization"):
        found = by_key(db, InvoiceDocument, invoice_id)
    if found is None:
        raise RecordNotFound("invoice not found")
    return found


def hold(db: Session, number_or_id: str) -> Invoice:
    """For the operator: held until the commit. Raises RecordNotFound."""
    named = (Invoice.id == number_or_id) | (Invoice.number == number_or_id)
    rows = select(Invoice).where(named).with_for_update()
    found = db.scalars(rows.execution_options(populate_existing=True)).one_or_none()
    if found is None:
        raise RecordNotFound(f"there is no invoice {number_or_id}")
    return found


def of_month(db: Session, month: str, *, limit: int, after: str = "") -> list[Invoice]:
    """For the operator: those of all organizations, oldest first."""
    rows = select(Invoice).where(Invoice.month == month, Invoice.id > after)
    return list(db.scalars(rows.order_by(Invoice.id).limit(limit)))


def documents(db: Session, invoice_ids: list[str]) -> set[str]:
    """Those of the invoices that have a document."""
    rows = select(InvoiceDocument.invoice_id)
    return set(db.scalars(rows.where(InvoiceDocument.invoice_id.in_(invoice_ids))))
