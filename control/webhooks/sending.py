"""First attempts: the events of an organization, to an endpoint, in their order.

What is recorded is the attempt, the delivery and how far the lane has come, in one transaction; a
deliverer that is killed before repeats the attempts, which receivers know by the event's id.
"""

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final

import orjson
from sqlalchemy import ColumnElement
from sqlalchemy.orm import Session

from clients import webhook_signing as signing
from control.delivery.backoff import HORIZON, next_at
from control.delivery.guarded import GuardedClient, PostAnswer
from control.delivery.lanes import SLOW_MS
from control.delivery.receiver_urls import Reach, ReceiverUrl, UrlRefused, receiver_url
from control.events.envelope import envelope, timestamp
from control.policy import event_patterns
from control.policy import webhooks as policy
from control.sealing import SealError
from control.services import Services
from control.webhooks import endings
from storage.database import now
from storage.events import (
    delivery_lanes,
    events,
    webhook_deliveries,
    webhook_endpoints,
    webhook_filters,
)
from storage.events.delivery_lanes import DeliveryLane
from storage.events.events import Event
from storage.events.webhook_endpoints import WebhookEndpoint

BATCH: Final = 50
PASSED_MAX: Final = 20
"""Batches without anything that matches, which a lane passes in one transaction."""
GONE: Final = 410


@dataclass(frozen=True)
class Destination:
    """Where to, and by which secrets; `refused` says why nothing is sent there any more."""

    place: ReceiverUrl | None
    secrets: tuple[str, ...]
    refused: str = ""


@dataclass(frozen=True)
class EventMessage:
    event_id: str
    kind: str
    body: bytes


@dataclass(frozen=True)
class Attempt:
    """What was sent, when by the clock of this machine (for readers), and what came back."""

    message: EventMessage
    at: datetime
    answer: PostAnswer


@dataclass(frozen=True)
class Batch:
    """Messages to send; when all are sent, the lane has come as far as `seq`."""

    destination: Destination
    messages: Sequence[tuple[int, EventMessage]]
    seq: int


@dataclass(frozen=True)
class LaneResult:
    attempts: Sequence[Attempt]
    seq: int


class WebhookTarget:
    """The lanes of webhook endpoints."""

    kind = webhook_endpoints.LANE

    def __init__(self, services: Services) -> None:
        self._services = services

    def has_more(self) -> ColumnElement[bool]:
        return delivery_lanes.has_events()

    def read(self, db: Session, lane: DeliveryLane) -> Batch | None:
        """The next events that match; the lane passes those that do not by itself."""
        endpoint = webhook_endpoints.find(db, lane.id)
        if endpoint is None:
            return None
        # Known before it is looked: what is committed meanwhile has a higher number.
        last = events.counts(db, [lane.org_id]).get(lane.org_id, 0)
        for _ in range(PASSED_MAX):
            found = events.after(db, lane.org_id, lane.seq, scope=None, limit=BATCH)
            if not found:
                # Those that retention has deleted are passed too, or it would be taken again.
                lane.seq = max(lane.seq, last)
                return None
            wanted = _matching(db, endpoint, found)
            if wanted:
                numbered = [(one.seq, message_of(one)) for one in wanted]
                to = destination(self._services, endpoint, now(db))
                return Batch(to, numbered, found[-1].seq)
            lane.seq = found[-1].seq
        # Others wait to write: it is taken again for the rest.
        return None

    async def send(self, batch: Batch, client: GuardedClient, until: float) -> LaneResult:
        """One after the other, until the time is over or one is gone for good."""
        attempts: list[Attempt] = []
        for place, (_, message) in enumerate(batch.messages):
            attempts.append(await attempt(client, batch.destination, message))
            is_last = place + 1 == len(batch.messages)
            if not is_last and (attempts[-1].answer.status == GONE or time.monotonic() > until):
                return LaneResult(attempts, batch.messages[place][0])
        return LaneResult(attempts, batch.seq)

    def record(self, db: Session, lane: DeliveryLane, result: LaneResult) -> None:
        moment = now(db)
        lane.seq = result.seq
        rows = [_row(lane, each, moment) for each in result.attempts]
        webhook_deliveries.insert_all(db, rows)
        for each, row in zip(result.attempts, rows, strict=True):
            note_in_lane(lane, each.answer, moment, row["next_attempt_at"])
        endings.end_if_due(db, self._services, lane, result.attempts[-1].answer.status, moment)


def message_of(event: Event) -> EventMessage:
    return EventMessage(event.id, event.type, orjson.dumps(envelope(event)))


def ping_of(delivery: webhook_deliveries.WebhookDelivery) -> EventMessage:
    """An event that is nowhere else."""
    told = Event(
        id=delivery.event_id,
        type=delivery.event_type,
        time=delivery.created_at,
        org_id=delivery.org_id,
        data={"webhook_id": delivery.webhook_id},
    )
    return message_of(told)


def destination(services: Services, endpoint: WebhookEndpoint, moment: datetime) -> Destination:
    """By the settings as they are now: what was allowed once may not be any more.

    It raises nothing: many endpoints are taken in one transaction, and one delays no other.
    """
    context, sealed = secret_context(endpoint.id), endpoint.sealed(moment)
    try:
        secrets = tuple(services.sealer.open(each, context).decode() for each in sealed)
        return Destination(receiver_url(endpoint.url, reach_of(services)), secrets)
    except SealError:
        return Destination(None, (), "the secret cannot be read: rotate it")
    except UrlRefused as refused:
        return Destination(None, (), f"the URL {refused}")


def reach_of(services: Services) -> Reach:
    settings = services.settings
    return Reach(settings.webhook_insecure_localhost, settings.webhook_allowed_networks)


def secret_context(endpoint_id: str) -> str:
    """What the secrets of an endpoint are sealed for."""
    return f"webhook secret {endpoint_id}"


def new_secret() -> str:
    """One that is shown once, and kept sealed."""
    return signing.new_secret()


async def attempt(client: GuardedClient, to: Destination, message: EventMessage) -> Attempt:
    """Signed anew: receivers refuse what was signed some minutes ago."""
    seconds = time.time()
    at = datetime.fromtimestamp(seconds, UTC)
    if to.place is None:
        return Attempt(message, at, PostAnswer(0, error=to.refused))
    signed = signing.headers(message.event_id, message.kind, message.body, int(seconds), to.secrets)
    answer = await client.post(to.place, message.body, signed)
    return Attempt(message, at, answer)


def told_of(tried: Attempt, number: int, next_attempt_at: datetime | None) -> dict[str, Any]:
    """An attempt as the delivery keeps it, and shows it."""
    return {
        "number": number,
        "at": timestamp(tried.at),
        "duration_ms": tried.answer.duration_ms,
        "status": tried.answer.status,
        "error": tried.answer.error,
        "response_head": tried.answer.head,
        "next_attempt_at": None if next_attempt_at is None else timestamp(next_attempt_at),
    }


def note_in_lane(
    lane: DeliveryLane, answer: PostAnswer, moment: datetime, next_attempt_at: datetime | None
) -> None:
    is_slow = answer.duration_ms > SLOW_MS
    if answer.is_success:
        lane.note_success(moment, is_slow=is_slow)
    else:
        lane.note_failure(moment, is_slow=is_slow)
    if next_attempt_at is not None:
        lane.try_again_at(next_attempt_at)


def _row(lane: DeliveryLane, tried: Attempt, moment: datetime) -> dict[str, Any]:
    answer = tried.answer
    until = moment + HORIZON
    failed = not answer.is_success
    again = next_at(moment, 1, until, answer.retry_after) if failed else None
    return {
        "id": webhook_deliveries.new_id(),
        "org_id": lane.org_id,
        "webhook_id": lane.id,
        "event_id": tried.message.event_id,
        "event_type": tried.message.kind,
        "status": "pending" if failed else "succeeded",
        "attempts": [told_of(tried, 1, again)],
        "attempt_count": 1,
        "failures": int(failed),
        "next_attempt_at": again,
        "until": until,
        "lease": 0,
    }


def _matching(db: Session, endpoint: WebhookEndpoint, found: Sequence[Event]) -> list[Event]:
    kinds = [one for one in found if _is_wanted(endpoint, one)]
    if not endpoint.filters or not kinds:
        return kinds
    about = webhook_filters.subjects(db, {one.instance_id for one in kinds if one.instance_id})
    filters = {name: frozenset(wanted) for name, wanted in endpoint.filters.items()}
    return [one for one in kinds if policy.passes(filters, _subject(one, about))]


def _is_wanted(endpoint: WebhookEndpoint, event: Event) -> bool:
    return any(event_patterns.matches(pattern, event.type) for pattern in endpoint.events)


def _subject(
    event: Event, about: Mapping[str, Mapping[str, str | None]]
) -> Mapping[str, str | None]:
    """What the instance of an event is, or else what its data says that it is about."""
    if event.instance_id is not None and event.instance_id in about:
        return about[event.instance_id]
    return {name: event.data.get(name.removesuffix("s")) for name in policy.FILTERS}
