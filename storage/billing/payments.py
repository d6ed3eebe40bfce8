"""Payments: which invoices a payment provider collects, and what it has told of them."""

from collections.abc import Collection
from datetime import datetime
from typing import Any, Final

from sqlalchemy import BigInteger, ForeignKey, Index, select
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.orm import Mapped, Session, mapped_column

from storage.columns import DatabaseClock, Owned, Record, one_of
from storage.lookups import by_key, delete_some

ENDS: Final = ("paid", "void", "elsewhere")


class PaymentCustomer(Owned, Record):
    """As what the provider knows an organization."""

    __tablename__ = "payment_customers"

    org_id: Mapped[str] = mapped_column(ForeignKey("organizations.id"), primary_key=True)
    customer_id: Mapped[str]


class InvoicePayment(Owned, Record):
    """An invoice that the provider collects.

    `asked_cents` is what it asks for, `url` where people pay. `ended` is what became of it there:
    `paid`, `void`, or paid `elsewhere`. `problem` is for the operator to read.
    """

    __tablename__ = "invoice_payments"
    __table_args__ = (one_of("ended", ENDS),)

    invoice_id: Mapped[str] = mapped_column(ForeignKey("invoices.id"), primary_key=True)
    org_id: Mapped[str] = mapped_column(ForeignKey("organizations.id"), index=True)
    provider_invoice_id: Mapped[str | None] = mapped_column(unique=True)
    url: Mapped[str | None]
    asked_cents: Mapped[int] = mapped_column(BigInteger, default=0)
    ended: Mapped[str | None]
    problem: Mapped[str | None]


class PaymentNotice(Record):
    """An event of the provider that was taken; what is sent again is known by its id."""

    __tablename__ = "payment_notices"
    __table_args__ = (Index(None, "created_at"),)

    id: Mapped[str] = mapped_column(primary_key=True)
    kind: Mapped[str]


def of_invoice(db: Session, invoice_id: str) -> InvoicePayment | None:
    """For workers: held until the commit."""
    return by_key(db, InvoicePayment, invoice_id, lock=True)


def urls(db: Session, invoice_ids: Collection[str]) -> dict[str, str]:
    """Where the invoices are paid, for those that the provider asks for."""
    rows = select(InvoicePayment.invoice_id, InvoicePayment.url)
    asked = InvoicePayment.url.is_not(None), InvoicePayment.ended.is_(None)
    found = db.execute(rows.where(InvoicePayment.invoice_id.in_(invoice_ids), *asked))
    return {invoice_id: str(url) for invoice_id, url in found}


def problems(db: Session, invoice_ids: Collection[str]) -> dict[str, str]:
    """For the operator: what is wrong with the payments of these invoices."""
    rows = select(InvoicePayment.invoice_id, InvoicePayment.problem)
    found = db.execute(rows.where(InvoicePayment.invoice_id.in_(invoice_ids)))
    return {invoice_id: problem for invoice_id, problem in found if problem is not None}


def begin(db: Session, org_id: str, invoice_id: str) -> None:
    db.add(InvoicePayment(invoice_id=invoice_id, org_id=org_id))
    db.flush()


def customer_of(db: Session, org_id: str) -> str | None:
    found = by_key(db, PaymentCustomer, org_id)
    return None if found is None else found.customer_id


def know_customer(db: Session, org_id: str, customer_id: str) -> None:
    if by_key(db, PaymentCustomer, org_id, lock=True) is None:
        db.add(PaymentCustomer(org_id=org_id, customer_id=customer_id))
        db.flush()


def take(db: Session, notice_id: str, kind: str) -> bool:
    """Note an event of the provider; False where it is known already. Whoever is second waits."""
    made: Any = postgresql.insert if db.get_bind().dialect.name == "postgresql" else sqlite.insert
    values = {"id": notice_id, "kind": kind, "created_at": DatabaseClock()}
    statement = made(PaymentNotice).values(values).on_conflict_do_nothing()
    return db.scalar(statement.returning(PaymentNotice.id)) is not None


def forget_notices(db: Session, before: datetime, limit: int) -> int:
    """Delete at most `limit` of those taken before that moment; how many went."""
    made = PaymentNotice.created_at
    return delete_some(db, PaymentNotice, made < before, limit, made)
