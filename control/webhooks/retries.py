"""Further attempts: deliveries that failed, tests and redeliveries, beside the lanes.

Each is taken for a minute. Whoever took it and was killed is not waited for longer, and cannot
record it any more.
"""

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

from sqlalchemy.orm import Session

from control.delivery.backoff import next_at
from control.delivery.guarded import GuardedClient
from control.delivery.lanes import TakenDelivery, Turn, each_apart_if_one_fails
from control.services import Services
from control.webhooks import endings
from control.webhooks.sending import (
    Attempt,
    Destination,
    EventMessage,
    attempt,
    destination,
    message_of,
    note_in_lane,
    ping_of,
    told_of,
)
from storage.database import Database, now
from storage.events import delivery_lanes, webhook_deliveries, webhook_endpoints
from storage.events.delivery_lanes import DeliveryLane
from storage.events.events import Event
from storage.events.webhook_deliveries import PING, WebhookDelivery

TAKEN_FOR: Final = timedelta(seconds=60)
AT_ONCE_MAX: Final = 60
OF_ORG_MAX: Final = 12
OF_ENDPOINT_MAX: Final = 3


@dataclass(frozen=True)
class Retry:
    lane_id: str
    org_id: str
    delivery_id: str
    lease: int
    destination: Destination
    message: EventMessage


@dataclass(frozen=True)
class Retried:
    lane_id: str
    org_id: str
    delivery_id: str
    lease: int
    attempt: Attempt


class WebhookRetries:
    """An endpoint has few of them at once, and its organization not many more."""

    def __init__(self, services: Services) -> None:
        self._services = services

    def take(self, database: Database, in_progress: Collection[TakenDelivery]) -> Turn:
        of_endpoint = Counter(one.lane_id for one in in_progress)
        of_org = Counter(one.org_id for one in in_progress)
        free = AT_ONCE_MAX - len(in_progress)
        full = {lane_id for lane_id, count in of_endpoint.items() if count >= OF_ENDPOINT_MAX}
        if free <= 0:
            return Turn()
        with database.read() as db:
            moment = now(db)
            due = delivery_lanes.with_retries(
                db, webhook_endpoints.LANE, moment, 2 * free, full=full
            )
            if not due:
                first = delivery_lanes.next_retry(db, webhook_endpoints.LANE, full=full)
                wait_s = None if first is None else (first - moment).total_seconds()
                return Turn(next_s=wait_s)
        limits: dict[str, int] = {}
        for lane_id, org_id in due:
            limit = min(OF_ENDPOINT_MAX - of_endpoint[lane_id], OF_ORG_MAX - of_org[org_id], free)
            if limit > 0:
                limits[lane_id] = limit
                of_org[org_id] += limit
                free -= limit
        if not limits:
            return Turn()

        def take(lane_ids: Sequence[str]) -> list[Retry]:
            with database.write() as db:
                return self._take(db, {each: limits[each] for each in lane_ids}, now(db))

        def set_aside(lane_id: str) -> None:
            with database.write() as db:
                for lane in delivery_lanes.locked(db, [lane_id]).values():
                    lane.retry_at = now(db) + TAKEN_FOR

        found: list[Retry] = each_apart_if_one_fails(take, set_aside, list(limits))
        return Turn(found, 0.0)

    def _take(self, db: Session, limits: Mapping[str, int], moment: datetime) -> list[Retry]:
        found: list[Retry] = []
        for lane in delivery_lanes.locked(db, limits).values():
            endpoint = webhook_endpoints.find(db, lane.id)
            if endpoint is None or lane.due is None:
                lane.retry_at = None
                continue
            to = destination(self._services, endpoint, moment)
            due = webhook_deliveries.take_due(
                db, lane.id, moment, limits[lane.id], moment + TAKEN_FOR
            )
            for delivery, event in due:
                message = _message(delivery, event)
                if message is None:
                    delivery.give_up()
                    continue
                about = (lane.id, lane.org_id, delivery.id, delivery.lease)
                found.append(Retry(*about, to, message))
            db.flush()
            lane.retry_at = webhook_deliveries.next_due(db, lane.id)
        return found

    async def send(self, taken: Retry, client: GuardedClient) -> Retried:
        tried = await attempt(client, taken.destination, taken.message)
        return Retried(taken.lane_id, taken.org_id, taken.delivery_id, taken.lease, tried)

    def record(
        self, db: Session, lanes: Mapping[str, DeliveryLane], results: Sequence[Retried]
    ) -> None:
        moment = now(db)
        held = webhook_deliveries.held(db, [(one.delivery_id, one.lease) for one in results])
        for one in results:
            lane, delivery = lanes.get(one.lane_id), held.get(one.delivery_id)
            # Deleted, disabled, sent again by request, or taken by another meanwhile.
            if lane is None or delivery is None or lane.due is None:
                continue
            self._note(db, lane, delivery, one.attempt, moment)

    def _note(
        self,
        db: Session,
        lane: DeliveryLane,
        delivery: WebhookDelivery,
        tried: Attempt,
        moment: datetime,
    ) -> None:
        answer = tried.answer
        again = None
        if not answer.is_success:
            again = next_at(moment, delivery.failures + 1, delivery.until, answer.retry_after)
        told = told_of(tried, delivery.attempt_count + 1, again)
        delivery.note(told, success=answer.is_success, next_at=again)
        note_in_lane(lane, answer, moment, again)
        db.flush()
        endings.end_if_due(db, self._services, lane, answer.status, moment)


def _message(delivery: WebhookDelivery, event: Event | None) -> EventMessage | None:
    if delivery.event_type == PING:
        return ping_of(delivery)
    return None if event is None else message_of(event)
