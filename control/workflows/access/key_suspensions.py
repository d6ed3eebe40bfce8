"""API keys that seem to be stolen: suspended at once, and the owners of the organization told."""

from collections.abc import Callable
from datetime import datetime
from functools import partial
from typing import Any, Final

from sqlalchemy.orm import Session

from control.events import publish
from control.mail import Letter, letters
from control.services import Services
from control.workflows.access import mail
from storage.access import key_leaks, organizations
from storage.access.api_keys import ApiKey
from storage.access.organizations import Organization
from storage.database import now
from storage.events import audit

SUSPENDED: Final = "api_key.suspended.v1"


def leaked(
    db: Session,
    services: Services,
    key: ApiKey,
    org: Organization,
    place: tuple[str, str],
    at: datetime,
) -> None:
    """With the transaction of the report. `place` is the source and the URL."""
    source, url = place
    key.suspend(f"a secret scanner found it in public ({source})", at)
    told = {"key_id": key.id, "reason": "leaked", "source": source, "url": url}
    publish(db, org.id, SUSPENDED, told)
    about: dict[str, Any] = {"key": (key.id, key.name, key.prefix), "place": url or source}
    _tell_owners(db, services, org, partial(letters.leaked_key, **about))
    db.flush()


def probing(db: Session, services: Services, key_id: str, request_id: str) -> bool:
    """Of a key that was tried at many operations; whether it was in force until now."""
    key, at = db.get(ApiKey, key_id, with_for_update=True), now(db)
    if key is None or not key.is_live(at):
        return False
    org = organizations.fetch(db, key.org_id)
    key.suspend("it was tried at many operations that it has no permission for", at)
    told = {"key_id": key.id, "reason": "probing", "source": "", "url": ""}
    publish(db, org.id, SUSPENDED, told)
    audit.append(
        db,
        org.id,
        "api_key.suspend",
        actor_kind="system",
        target=key.id,
        request_id=request_id,
        detail={"name": key.name, "reason": "probing"},
    )
    about: dict[str, Any] = {"key": (key.id, key.name, key.prefix)}
    _tell_owners(db, services, org, partial(letters.probing_key, **about))
    return True


def _tell_owners(
    db: Session, services: Services, org: Organization, letter: Callable[..., Letter]
) -> None:
    base_url = services.settings.base_url
    for email in key_leaks.owners(db, org.id):
        told = letter(to=email, org=org.name, base_url=base_url)
        mail.notify(db, services.sealer, told, org.id)
