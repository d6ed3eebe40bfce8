"""API keys that seem to be stolen: suspended at once, and the owners of the organization told."""

from datetime import datetime
from typing import Final

from sqlalchemy.orm import Session

from control.events import publish
from control.mail import letters
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
    for email in key_leaks.owners(db, org.id):
        letter = letters.leaked_key(
            to=email,
            org=org.name,
            key=(key.id, key.name, key.prefix),
            place=url or source,
            base_url=services.settings.base_url,
        )
        mail.notify(db, services.sealer, letter, org.id)
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
    for email in key_leaks.owners(db, org.id):
        letter = letters.probing_key(
            to=email,
            org=org.name,
            key=(key.id, key.name, key.prefix),
            base_url=services.settings.base_url,
        )
        mail.notify(db, services.sealer, letter, org.id)
    return True
