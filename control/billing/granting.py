"""Granting credits: with the event and the entry in the audit log, wherever they come from."""

from typing import Any, Final

from sqlalchemy.orm import Session

from control.events import publish
from control.policy import credits as policy
from storage.billing import credit_ledger
from storage.billing.credit_ledger import Credit
from storage.database import now
from storage.events import audit

GRANTED: Final = "credit.granted.v1"


def grant(
    db: Session,
    org_id: str,
    kind: str,
    cents: int,
    currency: str,
    *,
    reason: str,
    source: str,
    months: int | None,
) -> Credit:
    """A credit of so many cents, to the end of the month that comes so many months after this one.

    None is for ever. Raises StateConflict where something was granted for the same `source`.
    """
    expires_at = None if months is None else policy.expiry(now(db), months)
    values: dict[str, Any] = {"kind": kind, "amount_cents": cents, "currency": currency}
    made = credit_ledger.grant(
        db, org_id, **values, reason=reason, source=source, expires_at=expires_at
    )
    # Not the reason, which is any text.
    publish(db, org_id, GRANTED, {"credit_id": made.id, **values})
    detail = {**values, "months": months}
    audit.append(db, org_id, "credit.grant", actor_kind="system", target=made.id, detail=detail)
    return made
