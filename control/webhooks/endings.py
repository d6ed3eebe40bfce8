"""The end of endpoints that nobody answers at: disabled, with an event, an entry and letters."""

from datetime import datetime, timedelta
from typing import Final
from urllib.parse import urlsplit

from sqlalchemy.orm import Session

from control.access import role_holders
from control.events import publish
from control.mail import letters
from control.services import Services
from control.workflows.access import mail
from storage.access import memberships, organizations, users
from storage.events import audit, webhook_deliveries, webhook_endpoints
from storage.events.delivery_lanes import DeliveryLane
from storage.events.webhook_endpoints import WebhookEndpoint

DISABLED: Final = "webhook.disabled.v1"
GONE: Final = 410
LETTERS_MAX: Final = 20
_LOOKED_AT: Final = 200
_WRITE: Final = "webhooks:write"


def end_if_due(
    db: Session, services: Services, lane: DeliveryLane, status: int | None, moment: datetime
) -> None:
    """Of a lane that is locked: after its last attempt, which was answered with this status."""
    days = services.settings.webhook_disabled_after_days
    if status == GONE:
        reason = "gone"
    elif lane.failing_since and moment - lane.failing_since >= timedelta(days=days):
        reason = "failing"
    else:
        return
    endpoint = webhook_endpoints.find(db, lane.id)
    if endpoint is not None and lane.due is not None:
        _end(db, services, endpoint, lane, moment, reason)


def _end(
    db: Session,
    services: Services,
    endpoint: WebhookEndpoint,
    lane: DeliveryLane,
    moment: datetime,
    reason: str,
) -> None:
    failing_since = lane.failing_since or moment
    endpoint.disable(lane, moment, reason)
    dropped = webhook_deliveries.drop_pending(db, endpoint)
    # Not the URL: it may hold a token, and other endpoints are told of this.
    told = {"webhook_id": endpoint.id, "reason": reason}
    publish(db, endpoint.org_id, DISABLED, {**told, "deliveries_dropped": dropped})
    audit.append(
        db,
        endpoint.org_id,
        "webhook.disable",
        actor_kind="system",
        target=endpoint.id,
        detail={"reason": reason, "deliveries_dropped": dropped},
    )
    org = organizations.fetch(db, endpoint.org_id)
    for email in _writers(db, endpoint.org_id):
        letter = letters.webhook_disabled(
            to=email,
            org=org.name,
            webhook=(endpoint.id, urlsplit(endpoint.url).hostname or ""),
            since=failing_since if reason == "failing" else None,
            base_url=services.settings.base_url,
        )
        mail.notify(db, services.sealer, letter, org.id)


def _writers(db: Session, org_id: str) -> list[str]:
    """The addresses of people who can change it, by whatever role; so many are written to."""
    members = memberships.page(db, org_id, limit=_LOOKED_AT, after=None).items
    people = users.of_ids(db, [member.user_id for member in members])
    found: list[str] = []
    for member in members:
        holder = role_holders.of_member(db, org_id, member.user_id)
        person = people[member.user_id]
        if person.is_person and holder is not None and holder.rights.has(_WRITE):
            found.append(person.email)
    return found[:LETTERS_MAX]
