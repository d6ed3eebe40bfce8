"""Deciding applications for credit programs, as the operator does."""

from typing import Any, Final

from sqlalchemy.orm import Session

from control.billing import granting
from control.events import publish
from control.mail import billing_letters
from control.policy.prices import amount
from control.policy.programmes import PROGRAMMES
from control.services import Services
from control.workflows.access import mail
from storage.access import organizations, users
from storage.billing import programmes
from storage.billing.programmes import ProgrammeApplication
from storage.database import now
from storage.events import audit

DECIDED: Final = "programme.decided.v1"


def approve(
    db: Session, services: Services, application_id: str, *, cents: int | None, months: int | None
) -> ProgrammeApplication:
    """Grant the program's credit, or so many cents for so many months in place of them.

    Raises RecordNotFound, and StateConflict for what is decided already.
    """
    held = programmes.hold(db, application_id)
    held.decide("approved", now(db), None)
    programme = PROGRAMMES[held.programme]
    credit = granting.grant(
        db,
        held.org_id,
        "programme",
        cents or programme.amount_cents,
        services.settings.prices.currency,
        reason=f"the credit program {programme.name}",
        source=held.id,
        months=months or programme.months,
    )
    held.credit_id = credit.id
    _tell(db, services, held, credit.amount_cents)
    return held


def decline(db: Session, services: Services, application_id: str, note: str) -> None:
    """The applicant reads the note. Raises as `approve` does."""
    held = programmes.hold(db, application_id)
    held.decide("declined", now(db), note)
    _tell(db, services, held, 0)


def _tell(db: Session, services: Services, decided: ProgrammeApplication, cents: int) -> None:
    told: dict[str, Any] = {"programme": decided.programme, "status": decided.status}
    audit.append(
        db,
        decided.org_id,
        "programme.decide",
        actor_kind="system",
        target=decided.id,
        detail=told,
    )
    about = {"application_id": decided.id, "credit_id": decided.credit_id}
    publish(db, decided.org_id, DECIDED, {**told, **about})
    applicant = users.of_ids(db, [decided.applicant_id])[decided.applicant_id]
    if applicant.is_person:
        letter = billing_letters.programme_decided(
            to=applicant.email,
            org=organizations.fetch(db, decided.org_id).name,
            programme=PROGRAMMES[decided.programme].name,
            credit=amount(cents, services.settings.prices.currency) if cents else None,
            note=decided.note,
            base_url=services.settings.base_url,
        )
        mail.notify(db, services.sealer, letter, decided.org_id)
