"""When batches are sent: one after another for each delivery, again until it is confirmed."""

import asyncio
import time
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Final

import structlog
from sqlalchemy import ColumnElement
from sqlalchemy.orm import Session

from control import events
from control.delivery import backoff
from control.delivery.guarded import GuardedClient, PostAnswer
from control.delivery.lanes import SLOW_MS
from control.delivery.receiver_urls import Reach, UrlRefused
from control.events.envelope import timestamp
from control.sealing import Sealer, SealError
from control.siem import lines, targets
from control.siem.targets import SiemBatch, SiemRequest
from storage.database import now
from storage.events import siem_deliveries
from storage.events.delivery_lanes import DeliveryLane
from storage.events.siem_deliveries import SiemDelivery, StreamPositions

INTERRUPTED: Final = "siem_delivery.interrupted.v1"
RESUMED: Final = "siem_delivery.resumed.v1"
_log = structlog.get_logger("siem")


@dataclass(frozen=True)
class Times:
    """`every_s`: after a batch that was not full, the next one is not sent before."""

    every_s: float = 5.0
    first_retry_s: float = 5.0
    last_retry_s: float = 300.0
    interrupted_after_s: float = 900.0
    nothing_kept_s: float = 60.0


@dataclass(frozen=True)
class Sent:
    """What came of a batch; `error` is for the owner, and None where it was confirmed."""

    to: StreamPositions
    is_full: bool
    error: str | None
    is_slow: bool = False
    retry_after: str | None = None


class SiemLanes:
    """The deliveries to SIEMs, for a Deliverer."""

    kind = siem_deliveries.LANES

    def __init__(self, sealer: Sealer, reach: Reach, times: Times | None = None) -> None:
        self._sealer, self._reach = sealer, reach
        self._times = times or Times()

    def has_more(self) -> ColumnElement[bool]:
        return siem_deliveries.has_more()

    def read(self, db: Session, lane: DeliveryLane) -> SiemBatch | None:
        """The next batch, whose end is noted: sent again, it is the same one."""
        if lane.due is None or lane.due > now(db):
            return None
        delivery = siem_deliveries.fetch(db, lane.org_id, lane.id, lock=True)
        found = lines.read(db, delivery)
        if found is None and delivery.batch_to is not None:
            # All of it was forgotten while it was tried.
            delivery.give_up_batch()
            found = lines.read(db, delivery)
        if found is None:
            # What its streams have had is not kept; the next entry tells of the gap.
            lane.due = now(db) + timedelta(seconds=self._times.nothing_kept_s)
            return None
        delivery.begin_batch(found.to)
        return SiemBatch(
            delivery.id,
            delivery.org_id,
            delivery.kind,
            dict(delivery.target),
            delivery.sealed,
            delivery.batches + 1,
            found,
        )

    async def send(self, batch: SiemBatch, client: GuardedClient, _until: float) -> Sent:
        to, is_full = batch.lines.to, batch.lines.is_full
        try:
            # Compressing is no work for the event loop.
            request = await asyncio.to_thread(targets.request, self._sealer, batch, self._reach)
        except UrlRefused as refused:
            return Sent(to, is_full, f"the URL {refused}")
        except SealError:
            _log.exception("siem.secrets_unreadable", delivery=batch.delivery_id)
            return Sent(to, is_full, "its secrets cannot be opened by this installation")
        except Exception as fault:  # noqa: BLE001 -- what libraries make of a target
            # Not as an exception: the frames have the secrets.
            _log.error(
                "siem.request_not_made", delivery=batch.delivery_id, error=type(fault).__name__
            )
            return Sent(to, is_full, "no request can be made for this target: replace the delivery")
        headers = request.signed(batch.id, int(time.time()))
        answer = await client.send(request.method, request.place, request.content, headers)
        slow = answer.duration_ms > SLOW_MS
        error = _error(request, answer)
        return Sent(to, is_full, error, slow, answer.retry_after if error else None)

    def record(self, db: Session, lane: DeliveryLane, result: Sent) -> None:
        moment = now(db)
        delivery = siem_deliveries.fetch(db, lane.org_id, lane.id, lock=True)
        if result.error is None:
            self._delivered(db, lane, delivery, result, moment)
        else:
            self._failed(db, lane, delivery, result, moment)

    def _delivered(
        self,
        db: Session,
        lane: DeliveryLane,
        delivery: SiemDelivery,
        result: Sent,
        moment: datetime,
    ) -> None:
        since = delivery.became_delivered(result.to, moment)
        lane.note_success(moment, is_slow=result.is_slow)
        lane.seq = result.to.events
        wait_s = 0.0 if result.is_full else self._times.every_s
        lane.due = moment + timedelta(seconds=wait_s)
        siem_deliveries.forget_sent_egress(db, delivery.org_id)
        if since is not None:
            events.publish(db, delivery.org_id, RESUMED, _about(delivery, since))

    def _failed(
        self,
        db: Session,
        lane: DeliveryLane,
        delivery: SiemDelivery,
        result: Sent,
        moment: datetime,
    ) -> None:
        assert result.error is not None
        since = delivery.became_failing(result.error, moment)
        lane.note_failure(moment, is_slow=result.is_slow)
        # How long it waits is said here, and by nobody who counts the failures of lanes.
        lane.failures = 1
        lane.due = moment + timedelta(seconds=self._wait_s(delivery.failures, result, moment))
        over_s = (moment - since).total_seconds()
        if over_s >= self._times.interrupted_after_s and not delivery.interruption_told:
            delivery.interruption_told = True
            told = {**_about(delivery, since), "reason": result.error}
            events.publish(db, delivery.org_id, INTERRUPTED, told)

    def _wait_s(self, failures: int, result: Sent, moment: datetime) -> float:
        times = self._times
        waits = backoff.delay_s(failures, times.last_retry_s, times.first_retry_s)
        asked = backoff.asked_s(result.retry_after, moment) or 0.0
        return min(max(waits, asked, times.first_retry_s / 5), times.last_retry_s)


def _about(delivery: SiemDelivery, since: datetime) -> dict[str, Any]:
    return {"delivery_id": delivery.id, "target_kind": delivery.kind, "since": timestamp(since)}


def _error(request: SiemRequest, answer: PostAnswer) -> str | None:
    """Nothing of the answer's body: it may repeat what was sent, or a secret."""
    if answer.error is not None:
        return answer.error
    assert answer.status is not None
    if request.is_confirmed_by(answer.status):
        return None
    if 300 <= answer.status < 400:  # noqa: PLR2004 -- 3xx
        return f"the target answered {answer.status}, which redirects: redirects are not followed"
    return f"the target answered {answer.status}"
