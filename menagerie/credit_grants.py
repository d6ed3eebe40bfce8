"""What the operator's commands for credits do, and how they tell it."""

from collections.abc import Iterator
from typing import Any, Final

from control.billing import deciding, granting
from control.events.envelope import timestamp
from control.policy.credits import GRANT_CENTS_MAX
from control.policy.prices import amount as shown
from control.services import Services
from menagerie.errors import SettingsError
from storage import identifiers
from storage.access import organizations
from storage.billing import programmes
from storage.billing.programmes import ProgrammeApplication

TEXT_MAX: Final = 2_000
_PAGE: Final = 500
_DECIMALS: Final = 2


def grant(
    services: Services,
    org_id: str,
    amount: str,
    *,
    reason: str,
    months: int | None,
    reference: str | None,
) -> str:
    """Raises SettingsError for an amount or a text that is none, and as storage does."""
    cents, reason = cents_of(amount), text_of("reason", reason)
    currency = services.settings.prices.currency
    named = f"reference:{org_id}:{text_of('reference', reference)}" if reference else None
    with services.database.write() as db:
        org = organizations.fetch(db, org_id)
        made = granting.grant(
            db,
            org.id,
            "granted",
            cents,
            currency,
            reason=reason,
            source=named or identifiers.new("grant_"),
            months=months,
        )
        until = "for ever" if made.expires_at is None else f"until {timestamp(made.expires_at)}"
    return f"{made.id}: {shown(cents, currency)} of credit for {org.id}, {until}"


def applications(services: Services, status: str | None) -> list[dict[str, Any]]:
    """Each as it is shown; what strangers wrote has no control characters."""
    return [_shown(each) for each in _applications(services, status)]


def approve(services: Services, application_id: str, amount: str | None, months: int | None) -> str:
    cents = None if amount is None else cents_of(amount)
    with services.database.write() as db:
        decided = deciding.approve(db, services, application_id, cents=cents, months=months)
        return f"{decided.id}: approved, the credit is {decided.credit_id}"


def decline(services: Services, application_id: str, note: str) -> str:
    note = text_of("note", note)
    with services.database.write() as db:
        deciding.decline(db, services, application_id, note)
    return f"{application_id}: declined"


def cents_of(amount: str) -> int:
    """Of an amount as people write it, such as 49.90. Raises SettingsError."""
    whole, _, rest = amount.partition(".")
    if not f"{whole}{rest}".isdecimal() or not amount.isascii() or not whole:
        raise SettingsError(f"{amount!r} is no amount: write it as 50 or 49.90")
    if len(rest) > _DECIMALS or not (cents := int(whole) * 100 + int(rest.ljust(2, "0"))) > 0:
        raise SettingsError(f"{amount!r} must be at least 0.01, with at most two decimals")
    if cents > GRANT_CENTS_MAX:
        raise SettingsError(f"{amount!r} must be at most {GRANT_CENTS_MAX // 100:,}")
    return cents


def text_of(name: str, text: str) -> str:
    """Raises SettingsError for one that is empty, too long or not printable."""
    plain = text.strip()
    if not plain or len(plain) > TEXT_MAX or not plain.isprintable():
        raise SettingsError(f"--{name} must be a line of 1 to {TEXT_MAX} printable characters")
    return plain


def _applications(services: Services, status: str | None) -> Iterator[ProgrammeApplication]:
    after = None
    with services.database.read() as db:
        while found := programmes.everybodys(db, status, limit=_PAGE, after=after):
            yield from found
            after = found[-1].id


def _shown(application: ProgrammeApplication) -> dict[str, Any]:
    return {
        "id": application.id,
        "org_id": application.org_id,
        "programme": application.programme,
        "status": application.status,
        "website": application.website,
        "statement": "".join(each if each.isprintable() else " " for each in application.statement),
        "created_at": timestamp(application.created_at),
    }
