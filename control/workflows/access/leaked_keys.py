"""Keys that somebody found in public: suspended at once, and their owners told."""

from datetime import datetime
from typing import Final

from sqlalchemy.orm import Session

from control.events import publish
from control.mail import letters
from control.services import Services
from control.workflows.access import mail
from storage.access import key_leaks
from storage.access.api_keys import ApiKey
from storage.access.organizations import Organization

SUSPENDED: Final = "api_key.suspended.v1"


def suspend(
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
