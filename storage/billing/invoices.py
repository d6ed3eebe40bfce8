"""Invoices and credit notes: made once, with numbers without gaps, and then kept.

Only what becomes of one changes: it is paid, void or credited. The database refuses everything
else, counts what credit notes take off an invoice, and holds that to its sums (migration
202611301540).
"""

from datetime import datetime
from typing import Any, Final

from sqlalchemy import (
    BigInteger,
    CheckConstraint,
    ForeignKey,
    Index,
    LargeBinary,
    select,
    text,
)
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.orm import Mapped, Session, mapped_column

from storage import identifiers, pages, tenancy
from storage.columns import DatabaseClock, Json, Owned, Record, one_of
from storage.errors import RecordNotFound, StateConflict
from storage.lookups import by_key
from storage.pages import Page

STATUSES: Final = ("open", "paid", "void")
INVOICE: Final = "invoice"
CREDIT_NOTE: Final = "credit_note"
_IN_FORCE: Final = text(
    "kind = 'invoice' AND status <> 'void' AND credited_subtotal_cents < subtotal_cents"
)


class Invoice(Owned, Record):
    """All of it is as it was when it was made, the names and addresses of both sides too.

    Amounts are in cents, `tax_rate` in hundredths of a percent. `total_cents` is the subtotal
    without credits, with tax. `month` is as in 2026-11. A credit note is one too, for amounts that
    the invoice `corrects_id` is less by; of that, `corrects` has `number` and `issued_on`. Of the
    note, `refund_cents` had been paid and is to be paid back. `credited_cents` (of the total) and
    `credited_subtotal_cents` are the sums of an invoice's notes, and written by the database alone.
    """

    __tablename__ = "invoices"
    __table_args__ = (
        one_of("status", STATUSES),
        one_of("kind", (INVOICE, CREDIT_NOTE)),
        CheckConstraint("(kind = 'credit_note') = (corrects_id IS NOT NULL)", name="corrects_id"),
        CheckConstraint(
            "credited_cents >= 0 AND credited_cents <= total_cents", name="credited_cents"
        ),
        CheckConstraint(
            "credited_subtotal_cents >= 0 AND credited_subtotal_cents <= subtotal_cents",
            name="credited_subtotal_cents",
        ),
        CheckConstraint("refund_cents >= 0 AND refund_cents <= total_cents", name="refund_cents"),
        Index(
            "ix_invoices_in_force",
            *("org_id", "month"),
            unique=True,
            postgresql_where=_IN_FORCE,
            sqlite_where=_IN_FORCE,
        ),
        Index(None, "org_id", "id"),
        Index(None, "month", "id"),
        Index(None, "corrects_id"),
    )

    id: Mapped[str] = mapped_column(primary_key=True)
    org_id: Mapped[str] = mapped_column(ForeignKey("organizations.id"))
    kind: Mapped[str] = mapped_column(default=INVOICE)
    corrects_id: Mapped[str | None] = mapped_column(ForeignKey("invoices.id"))
    corrects: Mapped[dict[str, str] | None] = mapped_column(Json)
    reason: Mapped[str | None]
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
    credited_cents: Mapped[int] = mapped_column(BigInteger, default=0)
    credited_subtotal_cents: Mapped[int] = mapped_column(BigInteger, default=0)
    paid_cents: Mapped[int] = mapped_column(BigInteger, default=0)
    refund_cents: Mapped[int] = mapped_column(BigInteger, default=0)
    issuer: Mapped[dict[str, str]] = mapped_column(Json)
    customer: Mapped[dict[str, str]] = mapped_column(Json)
    issued_at: Mapped[datetime]
    due_at: Mapped[datetime]
    status: Mapped[str]
    paid_at: Mapped[datetime | None]
    voided_at: Mapped[datetime | None]
    void_reason: Mapped[str | None]
    payment_failed_at: Mapped[datetime | None]

    @property
    def is_credit_note(self) -> bool:
        return self.kind == CREDIT_NOTE

    @property
    def is_all_credited(self) -> bool:
        return self.credited_subtotal_cents == self.subtotal_cents

    @property
    def due_cents(self) -> int:
        """What is to be paid, of a credit note paid back: nothing unless it is open."""
        if self.status != "open":
            return 0
        return self.refund_cents if self.is_credit_note else self.total_cents - self.credited_cents

    def status_at(self, now: datetime) -> str:
        """`overdue` is what is open and was due before that moment, or whose payment failed."""
        if self.status != "open" or self.is_credit_note:
            return self.status
        is_late = self.due_at <= now or self.payment_failed_at is not None
        return "overdue" if is_late else "open"

    def pay(self, at: datetime) -> None:
        paid = self.due_cents
        self._end("paid")
        self.paid_at, self.paid_cents = at, paid

    def void(self, at: datetime, reason: str) -> None:
        self._end("void")
        self.voided_at, self.void_reason = at, reason

    def _end(self, status: str) -> None:
        if self.status != "open":
            named = "credit note" if self.is_credit_note else "invoice"
            raise StateConflict(f"the {named} {self.number} is {self.status}, and stays so")
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

    The database refuses a second invoice of the organization and month, unless the first one is
    void or all of it is credited; and a credit note of more than is left of the invoice.
    """
    counter = _held_counter(db, series)
    counter.last += 1
    made = Invoice(number=f"{series}-{counter.last:06}", **values)
    db.add(made)
    db.flush()
    return made


def _held_counter(db: Session, series: str) -> InvoiceNumber:
    held = by_key(db, InvoiceNumber, series, lock=True)
    if held is not None:
        return held
    # Of two that begin a series, the second waits here for the first.
    new = postgresql.insert if db.get_bind().dialect.name == "postgresql" else sqlite.insert
    values = {"series": series, "last": 0, "created_at": DatabaseClock()}
    db.execute(new(InvoiceNumber).values(values).on_conflict_do_nothing())
    rows = select(InvoiceNumber).where(InvoiceNumber.series == series).with_for_update()
    return db.scalars(rows.execution_options(populate_existing=True)).one()


def new_id() -> str:
    return identifiers.new("invoice_")


def page(db: Session, org_id: str, *, limit: int, after: str | None) -> Page[Invoice]:
    """The organization's, newest first."""
    rows = select(Invoice).where(Invoice.org_id == org_id)
    return pages.keyset(db, rows, Invoice.id, limit=limit, after=after)


def newest(db: Session, org_id: str, month: str) -> Invoice | None:
    """The last that was made of the organization and month, whatever became of it."""
    rows = select(Invoice).where(Invoice.org_id == org_id, Invoice.month == month)
    rows = rows.where(Invoice.kind == INVOICE).order_by(Invoice.id.desc())
    return db.scalars(rows.limit(1)).one_or_none()


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
    return _named(db, number_or_id, lock=True)


def find(db: Session, number_or_id: str) -> Invoice:
    """As `hold`, to be read only."""
    return _named(db, number_or_id, lock=False)


def _named(db: Session, number_or_id: str, *, lock: bool) -> Invoice:
    named = (Invoice.id == number_or_id) | (Invoice.number == number_or_id)
    rows = select(Invoice).where(named).execution_options(populate_existing=True)
    found = db.scalars(rows.with_for_update() if lock else rows).one_or_none()
    if found is None:
        raise RecordNotFound(f"there is no invoice {number_or_id}")
    return found


def notes_of(db: Session, invoice: Invoice) -> list[Invoice]:
    """The credit notes of an invoice, oldest first."""
    rows = select(Invoice).where(Invoice.corrects_id == invoice.id)
    return list(db.scalars(rows.order_by(Invoice.id)))


def of_month(db: Session, month: str, *, limit: int, after: str = "") -> list[Invoice]:
    """For the operator: those of all organizations, oldest first."""
    rows = select(Invoice).where(Invoice.month == month, Invoice.id > after)
    return list(db.scalars(rows.order_by(Invoice.id).limit(limit)))


def documents(db: Session, invoice_ids: list[str]) -> set[str]:
    """Those of the invoices that have a document."""
    rows = select(InvoiceDocument.invoice_id)
    return set(db.scalars(rows.where(InvoiceDocument.invoice_id.in_(invoice_ids))))
