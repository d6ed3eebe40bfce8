"""Who reads the invoices of an organization."""

from typing import Final

from sqlalchemy.orm import Session

from storage.access import memberships, users
from storage.billing.invoices import Invoice

LETTERS_MAX: Final = 20
_MEMBERS_MAX: Final = 200


def of(db: Session, invoice: Invoice) -> list[str]:
    """The address that the operator has for invoices, or those of the owners."""
    if invoice.customer["email"]:
        return [invoice.customer["email"]]
    members = memberships.page(db, invoice.org_id, limit=_MEMBERS_MAX, after=None).items
    owners = [one.user_id for one in members if one.role == "owner"]
    people = users.of_ids(db, owners).values()
    return [person.email for person in people if person.is_person][:LETTERS_MAX]
