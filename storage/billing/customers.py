"""Customers: how organizations are named on invoices, and where these are sent."""

from sqlalchemy import ForeignKey
from sqlalchemy.orm import Mapped, Session, mapped_column

from storage.columns import Json, Owned, Record
from storage.lookups import by_key


class Customer(Owned, Record):
    """How an organization is named on invoices, where the operator knows more than its name."""

    __tablename__ = "customers"

    org_id: Mapped[str] = mapped_column(ForeignKey("organizations.id"), primary_key=True)
    details: Mapped[dict[str, str]] = mapped_column(Json)


def details_of(db: Session, org_id: str) -> dict[str, str]:
    found = by_key(db, Customer, org_id)
    return {} if found is None else found.details


def describe(db: Session, org_id: str, details: dict[str, str]) -> None:
    found = by_key(db, Customer, org_id, lock=True)
    if found is None:
        db.add(Customer(org_id=org_id, details=details))
    else:
        found.details = details
    db.flush()
