"""Credits: a ledger of what was granted to organizations, and of what invoices used of it.

Grants and uses are only ever added; the database refuses to change or delete one (migration
202611301530). It keeps the sum of a grant's uses beside it, by a trigger on `credit_uses`, and a
constraint holds that between nothing and all of the grant. So no credit goes below zero, whoever
writes at the same time and by whatever statement. What is given back is a use of less than nothing.
"""

from dataclasses import asdict, dataclass
from datetime import datetime
from typing import Any, Final

from sqlalchemy import BigInteger, CheckConstraint, ForeignKey, Index, func, select
from sqlalchemy.orm import Mapped, Session, mapped_column

from storage import identifiers, pages
from storage.columns import DatabaseClock, Owned, Record, one_of
from storage.pages import Page

KINDS: Final = ("granted", "programme", "referral")


class Credit(Owned, Record):
    """A grant. Amounts are in cents; it is not used for months that end after `expires_at`.

    `source` names what it was granted for, such as an application; nothing is granted for the same
    twice. `used_cents` is written by the database alone.
    """

    __tablename__ = "credits"
    __table_args__ = (
        one_of("kind", KINDS),
        CheckConstraint("amount_cents > 0", name="amount_cents"),
        CheckConstraint("used_cents >= 0 AND used_cents <= amount_cents", name="used_cents"),
        Index(None, "org_id", "id"),
    )

    id: Mapped[str] = mapped_column(primary_key=True)
    org_id: Mapped[str] = mapped_column(ForeignKey("organizations.id"))
    kind: Mapped[str]
    amount_cents: Mapped[int] = mapped_column(BigInteger)
    used_cents: Mapped[int] = mapped_column(BigInteger, default=0)
    currency: Mapped[str]
    reason: Mapped[str]
    source: Mapped[str] = mapped_column(unique=True)
    expires_at: Mapped[datetime | None]

    @property
    def remaining_cents(self) -> int:
        return self.amount_cents - self.used_cents

    def status(self, now: datetime) -> str:
        if self.remaining_cents == 0:
            return "used"
        return "expired" if self.expires_at is not None and self.expires_at <= now else "active"


class CreditUse(Owned, Record):
    """So much of a credit for an invoice, in cents; less than nothing is given back."""

    __tablename__ = "credit_uses"
    __table_args__ = (
        CheckConstraint("amount_cents <> 0", name="amount_cents"),
        Index(None, "credit_id"),
        Index(None, "invoice_id"),
        Index(None, "org_id"),
    )

    id: Mapped[str] = mapped_column(primary_key=True)
    org_id: Mapped[str] = mapped_column(ForeignKey("organizations.id"))
    credit_id: Mapped[str] = mapped_column(ForeignKey("credits.id"))
    invoice_id: Mapped[str]
    amount_cents: Mapped[int] = mapped_column(BigInteger)


@dataclass(frozen=True)
class Used:
    """So many cents of a credit, for one invoice."""

    credit_id: str
    kind: str
    amount_cents: int

    def as_json(self) -> dict[str, Any]:
        return asdict(self)


def grant(db: Session, org_id: str, **values: Any) -> Credit:
    """The database refuses a second one of the same `source`."""
    made = Credit(id=identifiers.new("crd_"), org_id=org_id, **values)
    db.add(made)
    db.flush()
    return made


def page(db: Session, org_id: str, *, limit: int, after: str | None) -> Page[Credit]:
    """The organization's, newest first."""
    rows = select(Credit).where(Credit.org_id == org_id)
    return pages.keyset(db, rows, Credit.id, limit=limit, after=after)


def balance(db: Session, org_id: str, now: datetime, currency: str) -> int:
    """What is left of all credits that have not expired, in cents of the currency."""
    left = func.coalesce(func.sum(Credit.amount_cents - Credit.used_cents), 0)
    rows = select(left).where(Credit.org_id == org_id, Credit.currency == currency)
    rows = rows.where(Credit.expires_at.is_(None) | (Credit.expires_at > now))
    return int(db.scalars(rows).one())


def granted(db: Session, org_id: str, kind: str) -> int:
    """All that was granted of a kind, in cents."""
    total = func.coalesce(func.sum(Credit.amount_cents), 0)
    rows = select(total).where(Credit.org_id == org_id, Credit.kind == kind)
    return int(db.scalars(rows).one())


def use(
    db: Session, org_id: str, invoice_id: str, cents: int, *, currency: str, until: datetime
) -> list[Used]:
    """Use as much as there is, at most `cents`, for an invoice of a time that ends at `until`.

    What expires first is used first; of those that expire at the same time, or never, the oldest.
    The credits are held until the commit: whoever else wants them waits, and finds what is left.
    """
    rows = select(Credit).where(
        Credit.org_id == org_id,
        Credit.currency == currency,
        Credit.used_cents < Credit.amount_cents,
        Credit.expires_at.is_(None) | (Credit.expires_at >= until),
    )
    order = Credit.expires_at.is_(None), Credit.expires_at, Credit.id
    held = rows.order_by(*order).with_for_update()
    used: list[Used] = []
    for credit in db.scalars(held.execution_options(populate_existing=True)):
        taken = min(cents, credit.remaining_cents)
        if taken > 0:
            _record(db, credit, invoice_id, taken)
            used.append(Used(credit.id, credit.kind, taken))
            cents -= taken
    return used


def used_by(db: Session, invoice_id: str) -> int:
    """What the invoice uses of credits, in cents, without what was given back."""
    total = func.coalesce(func.sum(CreditUse.amount_cents), 0)
    rows = select(total).where(CreditUse.invoice_id == invoice_id)
    return int(db.scalars(rows).one())


def give_back(db: Session, invoice_id: str, cents: int) -> list[Used]:
    """So many cents of what the invoice used, at most all of it; what expires last comes first."""
    rows = select(Credit, func.sum(CreditUse.amount_cents))
    rows = rows.join(CreditUse, CreditUse.credit_id == Credit.id)
    rows = rows.where(CreditUse.invoice_id == invoice_id).group_by(Credit.id)
    order = Credit.expires_at.is_not(None), Credit.expires_at.desc(), Credit.id.desc()
    given: list[Used] = []
    for credit, used in db.execute(rows.order_by(*order)).all():
        returned = min(cents, int(used))
        if returned > 0:
            _record(db, credit, invoice_id, -returned)
            given.append(Used(credit.id, credit.kind, returned))
            cents -= returned
    return given


def _record(db: Session, credit: Credit, invoice_id: str, cents: int) -> None:
    made = CreditUse(
        id=identifiers.new("cru_"),
        org_id=credit.org_id,
        credit_id=credit.id,
        invoice_id=invoice_id,
        amount_cents=cents,
        created_at=DatabaseClock(),
    )
    db.add(made)
    db.flush()
    # The database has counted it.
    db.expire(credit, ["used_cents"])
