"""Batches are sent in order and without a gap, whatever the target does."""

import hashlib
import hmac
import threading
from datetime import timedelta
from functools import partial

import pytest
from sqlalchemy import delete, select

from contract_tests.siem.receiver import Posted
from contract_tests.siem.rig import WAIT_S, Rig
from contract_tests.workflows.siem import SECRET
from control.delivery.receiver_urls import Reach
from control.siem import lines
from control.siem.told import AUDIT, EGRESS, GAP
from storage.access import organizations
from storage.columns import EPOCH
from storage.database import now
from storage.events import audit_chain, egress, events, siem_deliveries
from storage.events.audit import AuditEntry
from storage.events.egress import EgressReport
from storage.events.events import Event

INTERRUPTED, RESUMED = "siem_delivery.interrupted.v1", "siem_delivery.resumed.v1"


def of(rig: Rig, type_: str) -> list[str]:
    """The ids of lines of that type, as they were received."""
    return [each["id"] for each in rig.receiver.lines if each["type"] == type_]


def test_the_three_streams_arrive_in_order(rig: Rig) -> None:
    rig.enter(3)
    rig.deliver_to()
    entered, happened = rig.enter(3), rig.happen(3)
    rig.send_out(2)
    rig.deliverer()
    entered += rig.enter(2)
    rig.until_received(*entered, *happened)
    assert of(rig, AUDIT) == entered, "those from before the delivery are not sent"
    assert of(rig, "org.member.removed.v1") == happened
    assert len(of(rig, EGRESS)) == 2
    rig.until(lambda: not egress_left(rig), "what was sent is kept no longer")
    one = next(each for each in rig.receiver.lines if each["type"] == AUDIT)
    assert one["org_id"] == rig.org_id
    assert one["data"]["action"] == "project.create"
    assert one["data"]["seq"] == 4


def egress_left(rig: Rig) -> int:
    with rig.database.read() as db:
        return egress.waiting(db, rig.org_id)


def test_posts_have_the_header_of_the_target_and_the_signature(rig: Rig) -> None:
    delivery_id = rig.deliver_to()
    rig.deliverer()
    rig.until_received(*rig.enter())
    (posted,) = rig.receiver.accepted
    assert posted.headers["authorization"] == "Splunk canary-token"
    assert posted.headers["content-type"] == "application/x-ndjson"
    assert posted.headers["svc-event-id"] == f"{delivery_id}-000000000001"
    stamp = posted.headers["svc-timestamp"]
    mac = hmac.new(SECRET.encode(), f"{stamp}.".encode() + posted.body, hashlib.sha256)
    assert posted.headers["svc-signature"] == f"v1={mac.hexdigest()}"


def test_an_outage_leaves_no_gap_and_changes_no_order(rig: Rig) -> None:
    """As of an hour, in short: every batch is refused, in every way, until the target is back."""
    delivery_id = rig.deliver_to()
    rig.receiver.always = 503
    rig.deliverer()
    entered, happened = rig.enter(5), rig.happen(2)
    rig.until(lambda: len(rig.receiver.refused) > 3, "it is tried again and again")
    for status in (401, 404, 429, 302, 500):
        rig.receiver.always = status
        refused = len(rig.receiver.refused)
        entered += rig.enter(2)
        rig.until(partial(more_refused, rig, refused + 1), "it goes on")
    failing = rig.delivery(delivery_id)
    assert failing.status == "failing"
    assert failing.last_error == "the target answered 500"
    rig.until(lambda: rig.delivery(delivery_id).interruption_told, "it is told of")
    rig.receiver.always = None
    rig.until_received(*entered, *happened)
    assert of(rig, AUDIT) == entered
    assert of(rig, "org.member.removed.v1") == happened
    bodies = {each.body for each in rig.receiver.refused}
    assert bodies == {rig.receiver.accepted[0].body}, "a batch is sent again as it was"
    numbers = [each.headers["svc-event-id"][-12:] for each in rig.receiver.accepted]
    assert numbers == [f"{number + 1:012d}" for number in range(len(numbers))]
    rig.until(lambda: of(rig, RESUMED), "that it goes on is told, and sent too")
    delivered = rig.delivery(delivery_id)
    assert (delivered.status, delivered.last_error, delivered.failures) == ("active", None, 0)
    with rig.database.read() as db:
        kinds = list(db.scalars(select(Event.type).where(Event.type.in_([INTERRUPTED, RESUMED]))))
    assert kinds == [INTERRUPTED, RESUMED], "each once"


def more_refused(rig: Rig, than: int) -> bool:
    return len(rig.receiver.refused) > than


def test_large_batches_are_cut_and_go_on_at_once(rig: Rig) -> None:
    rig.deliver_to()
    entered = rig.enter(lines.LINES_MAX + 20)
    rig.deliverer()
    rig.until_received(*entered)
    assert [len(each.lines) for each in rig.receiver.accepted[:2]] == [lines.LINES_MAX, 20]
    assert of(rig, AUDIT) == entered
    entered = rig.enter(8, text="x" * 300_000)
    rig.until_received(*entered)
    assert max(len(each.body) for each in rig.receiver.accepted) <= lines.BYTES_MAX
    assert of(rig, AUDIT)[-8:] == entered


def test_a_delivery_that_begins_earlier_has_all_since_then(rig: Rig) -> None:
    entered, happened = rig.enter(3), rig.happen(2)
    with rig.database.read() as db:
        moment = now(db)
    rig.deliver_to(begin_at=EPOCH)
    rig.deliver_to(begin_at=moment + timedelta(minutes=-10), format_="ocsf")
    rig.deliverer()
    rig.until(lambda: len(rig.receiver.lines) >= 10, "both have sent all")
    assert of_envelope(rig) == {*entered, *happened}
    assert {each["metadata"]["uid"] for each in rig.receiver.lines if "metadata" in each} == {
        *entered,
        *happened,
    }


def of_envelope(rig: Rig) -> set[str]:
    return {each["id"] for each in rig.receiver.lines if "id" in each}


def test_what_was_forgotten_before_it_was_sent_is_told_of(rig: Rig) -> None:
    rig.deliver_to()
    rig.enter(3)
    rig.happen(2)
    rig.send_out(2)
    with rig.database.write() as db:
        after = now(db) + timedelta(seconds=1)
        assert audit_chain.forget_old(db, after, 10) == 3
        assert events.forget_old(db, after, 10) == 2
        db.execute(delete(EgressReport))
    entered, happened = rig.enter(), rig.happen()
    rig.send_out()
    rig.deliverer()
    rig.until_received(*entered, *happened)
    gaps = {
        each["data"]["stream"]: each["data"] for each in rig.receiver.lines if each["type"] == GAP
    }
    assert {name: (each["first_seq"], each["last_seq"]) for name, each in gaps.items()} == {
        "audit": (1, 3),
        "events": (1, 2),
        "egress": (1, 2),
    }
    types = [each["type"] for each in rig.receiver.lines]
    assert types.index(GAP) < types.index(AUDIT)


def test_a_batch_that_was_forgotten_while_it_was_tried_is_given_up(rig: Rig) -> None:
    rig.deliver_to()
    rig.receiver.always = 500
    rig.deliverer()
    rig.enter(2)
    rig.until(lambda: rig.receiver.refused, "it is tried")
    with rig.database.write() as db:
        assert audit_chain.forget_old(db, now(db) + timedelta(seconds=1), 10) == 2
    entered = rig.enter()
    rig.receiver.always = None
    rig.until_received(*entered)


def test_a_disabled_delivery_goes_on_where_it_stopped(rig: Rig) -> None:
    delivery_id = rig.deliver_to()
    rig.deliverer()
    entered = rig.enter(2)
    rig.until(lambda: rig.delivery(delivery_id).audit_seq == len(entered), "it is recorded")
    switch(rig, delivery_id, enabled=False)
    others = rig.enter(2)
    rig.until(lambda: rig.delivery(delivery_id).status == "disabled", "it is disabled")
    assert of(rig, AUDIT) == entered
    switch(rig, delivery_id, enabled=True)
    rig.until_received(*others)
    assert of(rig, AUDIT) == [*entered, *others]


def switch(rig: Rig, delivery_id: str, *, enabled: bool) -> None:
    with rig.database.write() as db:
        held = siem_deliveries.fetch(db, rig.org_id, delivery_id)
        siem_deliveries.switch(db, held, enabled, now(db))


def test_a_removed_delivery_sends_nothing_more(rig: Rig) -> None:
    delivery_id, other = rig.deliver_to(), rig.deliver_to()
    rig.receiver.always = 500
    deliverer = rig.deliverer()
    rig.enter()
    rig.until(lambda: len(rig.receiver.refused) > 2, "both are tried")
    with rig.database.write() as db:
        siem_deliveries.remove(db, siem_deliveries.fetch(db, rig.org_id, delivery_id))
    # What was on its way by then may arrive.
    rig.until(lambda: not deliverer._held, "nothing is under way")
    rig.receiver.always = None
    entered = rig.enter()
    rig.until_received(*entered)
    rig.until(lambda: rig.delivery(other).last_delivered_at, "the other one goes on")
    ids = {each.headers["svc-event-id"].partition("-")[0] for each in rig.receiver.accepted}
    assert ids == {other}


@pytest.mark.parametrize("count", [3])
def test_killed_deliverers_leave_no_gap(rig: Rig, count: int) -> None:
    """One after the other, each as if killed while it sends; the next waits for the lease."""
    rig.deliver_to()
    entered = []
    for _ in range(count):
        deliverer = rig.deliverer(lease_s=0.3)
        entered += rig.enter(4)
        rig.until(lambda: rig.receiver.lines, "something is sent")
        deliverer.stop(wait_s=0)
    rig.deliverer(lease_s=0.3)
    rig.until_received(*entered)
    first_seen = list(dict.fromkeys(of(rig, AUDIT)))
    assert first_seen == entered


def test_a_deliverer_that_is_late_with_a_batch_moves_nothing_back(rig: Rig) -> None:
    """Its lease ended while the target thought about it; another has sent it, and more, since."""
    delivery_id = rig.deliver_to()
    answers, take = threading.Event(), rig.receiver.take
    asked = []

    def slow_at_first(posted: Posted) -> int:
        asked.append(posted)
        if len(asked) == 1:
            answers.wait(WAIT_S)
        return take(posted)

    rig.receiver.take = slow_at_first  # type: ignore[method-assign]
    rig.deliverer(lease_s=0.3)
    entered = rig.enter(3)
    rig.until(lambda: asked, "the first has begun")
    rig.deliverer(lease_s=0.3)
    rig.until_received(*entered)
    entered += rig.enter(3)
    rig.until_received(*entered)
    rig.until(lambda: rig.delivery(delivery_id).audit_seq == 6, "all is recorded")
    answers.set()
    rig.until(lambda: len(rig.receiver.accepted) == len(asked), "the first is answered too")
    entered += rig.enter()
    rig.until_received(*entered)
    assert list(dict.fromkeys(of(rig, AUDIT))) == entered
    bodies = {each.headers["svc-event-id"]: set[bytes]() for each in rig.receiver.accepted}
    for each in rig.receiver.accepted:
        bodies[each.headers["svc-event-id"]].add(each.body)
    assert {len(each) for each in bodies.values()} == {1}, "a number names one batch"


def test_targets_within_are_never_connected_to(rig: Rig) -> None:
    delivery_id = rig.deliver_to()
    rig.deliverer(reach=Reach())
    rig.enter()
    rig.until(lambda: rig.delivery(delivery_id).failing_since, "it is refused")
    assert not rig.receiver.accepted
    assert not rig.receiver.refused
    assert "must" in (rig.delivery(delivery_id).last_error or "")


def test_one_organizations_lines_go_to_no_other(rig: Rig) -> None:
    with rig.database.write() as db:
        other = organizations.create(db, name="Other", slug="other", plan="free").id
    rig.deliver_to()
    rig.enter(2, org_id=other)
    entered = rig.enter(2)
    rig.deliverer()
    rig.until_received(*entered)
    assert {each["org_id"] for each in rig.receiver.lines} == {rig.org_id}
    with rig.database.read() as db:
        assert db.scalars(select(AuditEntry).where(AuditEntry.org_id == other)).all()
