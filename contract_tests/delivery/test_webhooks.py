"""Events reach the endpoints that want them: in order, signed, again where that failed."""

import hashlib
import hmac
import json
import time
from datetime import timedelta
from typing import Any

import pytest
from sqlalchemy import select
from standardwebhooks.webhooks import Webhook

from clients import webhook_signing as signing
from contract_tests.delivery.outbox import Outbox, until
from contract_tests.delivery.receivers import Answering, Received, Receiver
from contract_tests.workflows.letters import Letters
from control.webhooks import sending
from control.webhooks.sending import secret_context
from storage.events import delivery_lanes, webhook_deliveries, webhook_endpoints
from storage.events import events as events_storage
from storage.events.audit import AuditEntry
from storage.events.events import Event


def ids(receiver: Receiver) -> list[str]:
    return [one.headers["svc-event-id"] for one in receiver.received]


def test_events_arrive_in_order_signed_and_recorded(outbox: Outbox) -> None:
    with Receiver() as receiver:
        endpoint, secret = outbox.endpoint(receiver.url)
        wanted = outbox.publish(120)
        outbox.deliver()
        until(lambda: len(receiver.received) == 120)
        assert ids(receiver) == wanted
        got = receiver.received[0]
        told = json.loads(got.body)
        assert told.keys() == {"id", "type", "time", "org_id", "data"}
        assert got.headers["content-type"] == "application/json"
        assert got.headers["svc-event-type"] == told["type"] == "org.member.removed.v1"
        # As a receiver does that has nothing of ours.
        signed = got.headers["svc-timestamp"].encode() + b"." + got.body
        expected = hmac.new(secret.encode(), signed, hashlib.sha256).hexdigest()
        assert got.headers["svc-signature"] == f"v1={expected}"
        assert Webhook(secret).verify(got.body, got.headers) == told
        until(lambda: len(outbox.deliveries(endpoint)) == 120)
        assert {one.status for one in outbox.deliveries(endpoint)} == {"succeeded"}
        until(lambda: outbox.lane(endpoint).holder is None)


def test_a_new_event_is_delivered_at_once(outbox: Outbox) -> None:
    with Receiver() as receiver:
        outbox.endpoint(receiver.url)
        outbox.deliver()
        for count in range(1, 4):
            outbox.publish(1)
            until(lambda count=count: len(receiver.received) == count)  # type: ignore[misc]


def test_what_fails_leaves_the_lane_and_is_tried_again_with_a_new_signature(
    outbox: Outbox,
) -> None:
    failing: set[str] = set()
    with Receiver() as receiver:
        endpoint, secret = outbox.endpoint(receiver.url)
        wanted = outbox.publish(3)
        failing.add(wanted[0])

        def answer(got: Received) -> Answering:
            fails = got.headers["svc-event-id"] in failing
            return Answering(503, {"Retry-After": "7200"}) if fails else Answering()

        receiver.answer = answer
        outbox.deliver()
        until(lambda: len(outbox.deliveries(endpoint)) == 3)
        assert ids(receiver) == wanted
        first = outbox.deliveries(endpoint)[0]
        assert (first.status, first.attempts[0]["status"]) == ("pending", 503)
        assert first.next_attempt_at is not None
        # Not before the receiver asked for it.
        assert first.next_attempt_at - first.created_at >= timedelta(seconds=7_100)
        failing.clear()
        time.sleep(1.1)
        outbox.retry_now(endpoint)
        until(lambda: outbox.deliveries(endpoint)[0].status == "succeeded")
        assert ids(receiver) == [*wanted, wanted[0]]
        again = receiver.received[-1]
        assert again.headers["svc-timestamp"] > receiver.received[0].headers["svc-timestamp"]
        Webhook(secret).verify(again.body, again.headers)
        assert [one["number"] for one in outbox.deliveries(endpoint)[0].attempts] == [1, 2]


def test_after_a_day_it_has_failed(outbox: Outbox) -> None:
    with Receiver(lambda _: Answering(500)) as receiver:
        endpoint, _ = outbox.endpoint(receiver.url)
        outbox.publish(1)
        outbox.deliver()
        until(lambda: len(outbox.deliveries(endpoint)) == 1)
        with outbox.database.write() as db:
            one = db.scalars(select(webhook_deliveries.WebhookDelivery)).one()
            one.until = one.created_at
        outbox.retry_now(endpoint)
        until(lambda: outbox.deliveries(endpoint)[0].status == "failed")


@pytest.mark.parametrize("way", ["gone", "failing"])
def test_an_endpoint_that_nobody_answers_at_is_disabled_and_people_are_told(
    outbox: Outbox, way: str
) -> None:
    status = 410 if way == "gone" else 500
    with Receiver(lambda _: Answering(status)) as receiver, Receiver() as other:
        endpoint, _ = outbox.endpoint(receiver.url)
        outbox.endpoint(other.url, ("webhook.*",))
        if way == "failing":
            with outbox.changed(endpoint) as (db, _record, lane):
                lane.failing_since = outbox.database.now(db) - timedelta(days=3)
        outbox.publish(5)
        outbox.deliver()
        until(lambda: not outbox.record(endpoint).enabled)
        assert outbox.record(endpoint).disabled_reason == way
        until(lambda: len(other.received) == 1)
        told = json.loads(other.received[0].body)
        assert told["type"] == "webhook.disabled.v1"
        assert told["data"]["reason"] == way
        assert {one.status for one in outbox.deliveries(endpoint)} == {"dropped"}
    with outbox.database.read() as db:
        (entry,) = db.scalars(select(AuditEntry).where(AuditEntry.action == "webhook.disable"))
        assert (entry.actor_kind, entry.target) == ("system", endpoint)
    outbox.stage.settle()
    letters = outbox.services.mailer
    assert isinstance(letters, Letters)
    (letter,) = letters.sent.values()
    assert letter.to == outbox.owner_email
    assert f"{endpoint} of the organization" in letter.text


def test_two_signatures_during_the_overlap(outbox: Outbox) -> None:
    with Receiver() as receiver:
        endpoint, former = outbox.endpoint(receiver.url)
        newer = signing.new_secret()
        sealed = outbox.services.sealer.seal(newer.encode(), secret_context(endpoint))
        with outbox.changed(endpoint) as (db, record, _lane):
            record.rotate(sealed, outbox.database.now(db) + timedelta(hours=1))
        outbox.publish(1)
        outbox.deliver()
        until(lambda: len(receiver.received) == 1)
        got = receiver.received[0]
        assert got.headers["svc-signature"].count("v1=") == 2
        for secret in (former, newer):
            Webhook(secret).verify(got.body, got.headers)
        with outbox.changed(endpoint) as (db, record, _lane):
            record.previous_until = outbox.database.now(db)
        outbox.publish(1)
        until(lambda: len(receiver.received) == 2)
        assert receiver.received[1].headers["svc-signature"].count("v1=") == 1


def test_only_what_matches_is_sent_and_the_lane_passes_the_rest(outbox: Outbox) -> None:
    with Receiver() as receiver, Receiver() as filtered:
        endpoint, _ = outbox.endpoint(receiver.url, ("instance.*",))
        outbox.endpoint(filtered.url, ("*",), {"project_ids": [outbox.stage.project_id]})
        outbox.publish(3)
        instance = outbox.stage.instance("pausing")
        outbox.stage.start("instances.pause", instance)
        outbox.stage.settle()
        outbox.deliver()
        for each in (receiver, filtered):
            until(lambda each=each: len(each.received) == 1)  # type: ignore[misc]
            assert json.loads(each.received[0].body)["data"]["instance_id"] == instance.id
        outbox.publish(2)
        with outbox.database.read() as db:
            newest = max(db.scalars(select(Event.seq)))
        until(lambda: outbox.lane(endpoint).seq == newest)
        assert len(receiver.received) == 1


def test_a_ping_is_sent_to_its_endpoint_alone_and_once(outbox: Outbox) -> None:
    with Receiver(lambda _: Answering(500)) as receiver, Receiver() as other:
        endpoint, secret = outbox.endpoint(receiver.url, ("backup.*",))
        outbox.endpoint(other.url)
        outbox.deliver()
        with outbox.changed(endpoint) as (db, record, lane):
            webhook_deliveries.ping(db, record, outbox.database.now(db))
            lane.try_again_at(outbox.database.now(db))
        until(lambda: outbox.deliveries(endpoint)[0].status == "failed")
        (got,) = receiver.received
        assert Webhook(secret).verify(got.body, got.headers)["data"] == {"webhook_id": endpoint}
        assert not other.received


def test_deleting_or_disabling_drops_what_is_pending_also_under_way(outbox: Outbox) -> None:
    with Receiver(lambda _: Answering(500, hangs_s=0.3)) as receiver:
        endpoint, _ = outbox.endpoint(receiver.url)
        outbox.publish(20)
        outbox.deliver()
        until(lambda: receiver.received)
        with outbox.database.write() as db:
            found = webhook_endpoints.find(db, endpoint)
            assert found is not None
            webhook_endpoints.delete(db, found)
        # A turn ends within a second.
        time.sleep(2)
        arrived = len(receiver.received)
        assert arrived < 20
        time.sleep(0.5)
        assert len(receiver.received) == arrived


def test_one_that_hangs_delays_nobody(outbox: Outbox) -> None:
    """By the bound: each of nine has its event while the tenth is still hanging."""
    with Receiver(lambda _: Answering(hangs_s=30)) as hanging, Receiver() as sound:
        outbox.endpoint(hanging.url)
        for _ in range(9):
            outbox.endpoint(sound.url)
        outbox.deliver()
        begun = time.monotonic()
        outbox.publish(4)
        until(lambda: len(sound.received) == 36)
        # The tenth is given ten seconds.
        assert time.monotonic() - begun < 10
        assert len(hanging.received) == 1


def test_one_that_hangs_now_and_then_is_not_among_those_that_never_do(outbox: Outbox) -> None:
    """By what it has done lately, whatever it did last; else a few could hold all places."""
    with Receiver() as receiver:
        endpoint, _ = outbox.endpoint(receiver.url)
        sound, _ = outbox.endpoint(receiver.url)
        with outbox.changed(endpoint) as (db, _record, lane):
            moment = outbox.database.now(db)
            assert not lane.is_doubtful(moment)
            lane.note_success(moment, is_slow=True)
            lane.note_success(moment, is_slow=False)
            assert lane.is_doubtful(moment)
            assert not lane.is_doubtful(moment + delivery_lanes.SLOW_FOR)
        outbox.publish(1)
        more = {"webhook": delivery_lanes.has_events()}
        with outbox.database.read() as db:
            at = outbox.database.now(db)
            every = delivery_lanes.waiting(db, more, at, 9, with_doubtful=True)
            assert {each[0]: each[2] for each in every} == {endpoint: True, sound: False}
            some = delivery_lanes.waiting(db, more, at, 9, with_doubtful=False)
            assert [each[0] for each in some] == [sound]
            later = at + delivery_lanes.SLOW_FOR
            assert len(delivery_lanes.waiting(db, more, later, 9, with_doubtful=False)) == 2


def test_one_whose_secret_cannot_be_read_delays_nobody(outbox: Outbox) -> None:
    with Receiver() as broken, Receiver() as sound:
        endpoint, _ = outbox.endpoint(broken.url)
        outbox.endpoint(sound.url)
        with outbox.changed(endpoint) as (_db, record, _lane):
            record.secret_sealed = b"sealed by no key that is here"
        outbox.publish(3)
        outbox.deliver()
        until(lambda: len(sound.received) == 3)
        until(lambda: len(outbox.deliveries(endpoint)) == 3)
        for delivery in outbox.deliveries(endpoint):
            assert delivery.attempts[0]["error"] == "the secret cannot be read: rotate it"
        assert not broken.received


def test_another_deliverer_takes_over_and_one_without_the_lease_writes_nothing(
    outbox: Outbox,
) -> None:
    with Receiver(lambda _: Answering(hangs_s=0.5)) as receiver:
        endpoint, _ = outbox.endpoint(receiver.url)
        outbox.publish(1)
        outbox.deliver()
        until(lambda: receiver.received)
        with outbox.changed(endpoint) as (_db, _record, lane):
            # As when its lease has ended and another has been given the lane.
            lane.lease += 1
            lane.give_back()
        until(lambda: len(outbox.deliveries(endpoint)) == 1)
        assert len(receiver.received) == 2
        assert len(set(ids(receiver))) == 1


def test_what_settings_no_longer_allow_is_not_sent(outbox: Outbox) -> None:
    with Receiver() as receiver:
        endpoint, _ = outbox.endpoint(f"http://127.0.0.2:{receiver.port}/")
        outbox.publish(1)
        outbox.deliver()
        until(lambda: len(outbox.deliveries(endpoint)) == 1)
        attempt: dict[str, Any] = outbox.deliveries(endpoint)[0].attempts[0]
        assert attempt["error"] == "the URL must have a public address"
        assert not receiver.connections


def test_one_that_cannot_be_read_delays_nobody(outbox: Outbox) -> None:
    """As after a fault of ours: also lanes that are taken together with it go on."""
    with Receiver() as broken, Receiver() as sound:
        endpoint, _ = outbox.endpoint(broken.url)
        outbox.endpoint(sound.url)
        with outbox.changed(endpoint) as (_db, record, _lane):
            record.events = 5
        outbox.publish(3)
        outbox.deliver()
        until(lambda: len(sound.received) == 3, 10)
        outbox.publish(2)
        until(lambda: len(sound.received) == 5, 10)
        assert not broken.received
        # It is not asked again and again meanwhile.
        assert outbox.lane(endpoint).leased_until is not None
        with outbox.changed(endpoint) as (_db, record, lane):
            record.events = ["*"]
            lane.give_back()
        until(lambda: len(broken.received) == 5)


def test_what_was_sent_is_recorded_though_the_next_cannot_be_read(
    outbox: Outbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    last: list[str] = []
    read = events_storage.after

    def failing(db: Any, org_id: str, seq: int, **named: Any) -> Any:
        found = read(db, org_id, seq, **named)
        if any(one.id in last for one in found):
            raise ValueError("as if it could not be read")
        return found

    with Receiver() as receiver:
        endpoint, _ = outbox.endpoint(receiver.url)
        wanted = outbox.publish(sending.BATCH + 1)
        last.append(wanted[-1])
        monkeypatch.setattr(events_storage, "after", failing)
        outbox.deliver()
        # All of the first batch, or what of it a turn has time for.
        until(lambda: outbox.deliveries(endpoint), 10)
        until(lambda: len(outbox.deliveries(endpoint)) == len(receiver.received), 10)
        assert ids(receiver) == wanted[: len(receiver.received)]


def test_one_that_cannot_be_tried_again_delays_no_other(
    outbox: Outbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    answers = {"status": 500}
    with Receiver(lambda _: Answering(answers["status"])) as receiver:
        broken, _ = outbox.endpoint(receiver.url)
        sound, _ = outbox.endpoint(receiver.url)
        outbox.publish(1)
        outbox.deliver()
        both = (broken, sound)
        until(lambda: all(len(outbox.deliveries(each)) == 1 for each in both))
        make = sending.destination

        def failing(services: Any, endpoint: Any, moment: Any) -> Any:
            if endpoint.id == broken:
                raise ValueError("as if it could not be read")
            return make(services, endpoint, moment)

        monkeypatch.setattr("control.webhooks.retries.destination", failing)
        answers["status"] = 200
        for each in both:
            outbox.retry_now(each)
        until(lambda: outbox.deliveries(sound)[0].status == "succeeded", 10)
        assert outbox.deliveries(broken)[0].status == "pending"


def test_many_that_do_not_match_are_passed_in_turns(
    outbox: Outbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever passes them keeps nobody from writing for long, and comes to their end."""
    monkeypatch.setattr(sending, "PASSED_MAX", 1)
    with Receiver() as receiver:
        endpoint, _ = outbox.endpoint(receiver.url, ("webhook.*",))
        outbox.publish_many(170)
        target = sending.WebhookTarget(outbox.services)
        with outbox.changed(endpoint) as (db, _record, lane):
            first = lane.seq
            assert target.read(db, lane) is None
            assert lane.seq == first + sending.BATCH
        outbox.deliver()
        until(lambda: outbox.lane(endpoint).seq == first + 170, 10)
        assert not receiver.received
