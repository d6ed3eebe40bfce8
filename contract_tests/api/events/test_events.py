"""Streams of events: what is sent, to whom, from where on, and until when."""

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from datetime import timedelta
from functools import partial
from typing import Any

import pytest
from sqlalchemy.orm import Session

from contract_tests import published
from contract_tests.api.access.test_teams import Company
from contract_tests.api.conftest import MakeHouse
from contract_tests.api.harness import House, Tenant
from contract_tests.api.streams import Address, Stream, happen, served
from control.boundary import live_answers as lasting
from storage.access.memberships import Membership
from storage.events import events

NEVER = 600.0


@pytest.fixture
def house(make_house: MakeHouse) -> House:
    return make_house(stream_ttl_s=NEVER)


@pytest.fixture
def address(house: House) -> Iterator[Address]:
    with served(house) as found:
        yield found


@pytest.fixture
def woken_only(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody looks of himself."""
    monkeypatch.setattr(lasting, "LOOK_EVERY_S", NEVER)


@pytest.fixture
def looks_often(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lasting, "LOOK_EVERY_S", 0.1)


def of_org(tenant: Tenant) -> str:
    return f"{tenant.path}/events"


def of_instance(tenant: Tenant, instance_id: str) -> str:
    return f"{tenant.path}/instances/{instance_id}/events"


def streams_open(house: House) -> int:
    assert house.app.shares is not None
    return house.app.shares._live._taken


def until(condition: Callable[[], bool]) -> None:
    ends_at = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < ends_at
        time.sleep(0.01)


@pytest.mark.usefixtures("woken_only")
def test_what_happens_is_sent_at_once_as_webhooks_would_get_it(
    house: House, address: Address
) -> None:
    tenant = house.tenant()
    instance_id, other_id = house.instance(tenant), house.instance(tenant)
    with (
        Stream(address, of_org(tenant), tenant.key) as everything,
        Stream(address, of_instance(tenant, instance_id), tenant.owner.session) as one,
    ):
        everything.begin()
        one.begin()
        told = {"instance_id": instance_id, "paused_by": "user"}
        paused = f"{tenant.path}/instances/{instance_id}/actions/pause"
        assert house.post(paused, tenant.key).status_code == 202
        happen(house, tenant.org_id, other_id)
        house.settle()
        assert [each["data"].get("instance_id") for each in everything.take(2)] == [
            other_id,
            instance_id,
        ]
        found = one.next()
        assert found is not None
        assert (found["type"], found["org_id"]) == ("instance.paused.v1", tenant.org_id)
        assert found["data"] == told
        with published.checked() as described:
            described.check(found["type"], found["data"])


def test_a_stream_may_begin_at_the_oldest_event(house: House, address: Address) -> None:
    tenant = house.tenant()
    house.instance(tenant)
    with Stream(address, of_org(tenant), tenant.key, last=events.FIRST) as stream:
        kinds = [each["type"] for each in stream.begin().take(2)]
    assert kinds == ["instance.requested.v1", "instance.ready.v1"]


@pytest.mark.nightly
def test_it_goes_on_where_it_ended_over_20_disconnects(house: House, address: Address) -> None:
    """While three writers commit at once, of which none waits for another."""
    tenant = house.tenant()
    instance_id = house.instance(tenant)
    each = 40
    begun = Stream(address, of_org(tenant), tenant.key).begin()
    begun.close()
    last, found = begun.last, list[str]()
    write = partial(happen, house, tenant.org_id, instance_id, each)
    writers = [threading.Thread(target=write) for _ in range(3)]
    for writer in writers:
        writer.start()
    for _ in range(20):
        with Stream(address, of_org(tenant), tenant.key, last=last) as stream:
            found += [one["id"] for one in stream.begin().take(3 * each // 20)]
            last = stream.last
    for writer in writers:
        writer.join()
    with house.database.read() as db:
        seq = events.newest(db, tenant.org_id)[0] - 3 * each
        written = events.after(db, tenant.org_id, seq, scope=None, limit=3 * each)
    assert found == [one.id for one in written]
    # None of them outlives its client.
    until(lambda: streams_open(house) == 0)


@pytest.mark.usefixtures("woken_only")
def test_a_commit_in_another_process_is_heard(make_house: MakeHouse) -> None:
    here, there = make_house(stream_ttl_s=NEVER), make_house()
    tenant = here.tenant()
    instance_id = here.instance(tenant)
    with served(here) as address, Stream(address, of_org(tenant), tenant.key) as stream:
        stream.begin()
        made = happen(there, tenant.org_id, instance_id)
        assert [one["id"] for one in stream.take(1)] == made


def revoked_key(house: House, tenant: Tenant) -> None:
    house.change_key(tenant.org_id, tenant.key_id, revoked_at=house.now())


def suspended_key(house: House, tenant: Tenant) -> None:
    house.change_key(tenant.org_id, tenant.key_id, suspended_at=house.now())


def expired_key(house: House, tenant: Tenant) -> None:
    house.change_key(tenant.org_id, tenant.key_id, expires_at=house.now() + timedelta(hours=1))
    house.pass_time(3700)


def narrowed_key(house: House, tenant: Tenant) -> None:
    house.change_key(tenant.org_id, tenant.key_id, scopes=["audit:read"])


def left(house: House, tenant: Tenant) -> None:
    with house.database.write() as db:
        db.delete(db.get_one(Membership, (tenant.org_id, tenant.owner.id)))


ENDS = [revoked_key, suspended_key, expired_key, narrowed_key, left]


@pytest.mark.every_database
@pytest.mark.usefixtures("woken_only")
@pytest.mark.parametrize("end", ENDS, ids=lambda end: end.__name__)
def test_it_ends_with_the_right_at_once(house: House, address: Address, end: Any) -> None:
    tenant = house.tenant()
    instance_id = house.instance(tenant)
    with (
        Stream(address, of_org(tenant), tenant.key) as everything,
        Stream(address, of_instance(tenant, instance_id), tenant.key) as one,
    ):
        streams = [everything.begin(), one.begin()]
        end(house, tenant)
        # Nothing needs to happen for it.
        assert [stream.next() for stream in streams] == [None, None]
    with Stream(address, of_org(tenant), tenant.key) as again:
        assert again.status in (401, 403)


@pytest.mark.every_database
@pytest.mark.usefixtures("looks_often")
def test_a_right_that_ends_while_it_is_looked_gives_nothing(
    house: House, address: Address, monkeypatch: pytest.MonkeyPatch
) -> None:
    tenant = house.tenant()
    instance_id = house.instance(tenant)
    look, ended = events.after, threading.Event()

    def end_and_look(db: Session, *asked: Any, **named: Any) -> Any:
        if not ended.is_set():
            ended.set()
            revoked_key(house, tenant)
            happen(house, tenant.org_id, instance_id)
        return look(db, *asked, **named)

    with Stream(address, of_org(tenant), tenant.key) as stream:
        stream.begin()
        monkeypatch.setattr(events, "after", end_and_look)
        assert stream.next() is None
    assert ended.is_set()


@pytest.mark.usefixtures("woken_only")
def test_an_event_after_the_end_of_the_right_is_never_sent(house: House, address: Address) -> None:
    """However seldom anybody looks: the look that finds the event is held to the right."""
    tenant = house.tenant()
    instance_id = house.instance(tenant)
    with Stream(address, of_org(tenant), tenant.key) as stream:
        stream.begin()
        revoked_key(house, tenant)
        happen(house, tenant.org_id, instance_id)
        assert stream.next() is None


def test_rights_are_looked_at_within_what_is_promised_where_nobody_can_be_told() -> None:
    assert lasting.UNTOLD_LOOK_EVERY_S < 5


def test_nothing_of_another_organization_is_sent(house: House, address: Address) -> None:
    mine, other = house.tenant(), house.tenant()
    own, foreign = house.instance(mine), house.instance(other)
    theirs = happen(house, other.org_id, foreign)
    with Stream(address, of_org(mine), mine.key, last=events.FIRST) as stream:
        stream.begin()
        happen(house, other.org_id, foreign, 3)
        ours = happen(house, mine.org_id, own)
        found = stream.take(3)
        assert found[-1]["id"] == ours[0]
        assert {each["org_id"] for each in found} == {mine.org_id}
    for path, status, code in (
        (of_org(other), 404, "not_found"),
        (of_instance(mine, foreign), 404, "not_found"),
        (of_instance(other, foreign), 404, "not_found"),
    ):
        answer = house.get(path, mine.key)
        assert (answer.status_code, answer.json()["code"]) == (status, code), path
    # Another's event is one that never was.
    for last in (theirs[0], "evt_01ARZ3NDEKTSV4RRFFQ69G5FAV"):
        for path in (of_org(mine), of_instance(mine, own)):
            for refused in (
                house.get(path, mine.key, headers={"Last-Event-ID": last}),
                house.get(f"{path}?after={last}", mine.key),
            ):
                assert (refused.status_code, refused.json()["code"]) == (422, "event_unknown")


@pytest.mark.usefixtures("woken_only")
def test_a_member_of_a_team_sees_the_events_of_its_instances(
    house: House, address: Address
) -> None:
    company = Company(house)
    tenant, blue, red = company.tenant, company.ids["blue"], company.ids["red"]
    member = company.person(teams_only=True)
    company.set_role(member, "blue", "viewer")
    assert house.get(of_instance(tenant, red["instance_id"]), member.session).status_code == 404
    with (
        Stream(address, of_org(tenant), member.session) as everything,
        Stream(address, of_instance(tenant, blue["instance_id"]), member.session) as one,
    ):
        everything.begin()
        one.begin()
        happen(house, tenant.org_id, red["instance_id"])
        happen(house, tenant.org_id, None)
        made = happen(house, tenant.org_id, blue["instance_id"])
        assert [each["id"] for each in (*everything.take(1), *one.take(1))] == made * 2
        company.set_role(member, "red", "viewer")
        given = happen(house, tenant.org_id, red["instance_id"])
        assert [each["id"] for each in everything.take(1)] == given
        company.set_role(member, "red", None)
        happen(house, tenant.org_id, red["instance_id"])
        made = happen(house, tenant.org_id, blue["instance_id"])
        assert [each["id"] for each in (*everything.take(1), *one.take(1))] == made * 2
        company.set_role(member, "blue", None)
        assert one.next() is None


@pytest.mark.usefixtures("woken_only")
def test_those_that_wait_hold_neither_a_thread_nor_a_connection(
    house: House, address: Address
) -> None:
    tenant = house.tenant()
    instance_id = house.instance(tenant)
    with ExitStack() as stack:
        streams = [
            stack.enter_context(Stream(address, of_org(tenant), tenant.key)).begin()
            for _ in range(50)
        ]
        # Every one has looked once when it has sent what there was.
        happen(house, tenant.org_id, instance_id)
        assert all(stream.next() for stream in streams)
        pool: Any = house.database.engine.pool
        until(lambda: not house.app.threads._load and not pool.checkedout())
        assert streams_open(house) == len(streams)
        with Stream(address, of_org(tenant), tenant.key) as refused:
            assert refused.status == 429
            assert b"too_many_at_once" in refused.response.read()
        assert house.get(tenant.path, tenant.key).status_code == 200
        other = house.tenant()
        stack.enter_context(Stream(address, of_org(other), other.key)).begin()


def test_it_ends_after_its_time_and_head_at_once(make_house: MakeHouse) -> None:
    house = make_house(stream_ttl_s=0.1)
    tenant = house.tenant()
    with served(house) as address:
        with Stream(address, of_org(tenant), tenant.key) as stream:
            assert stream.begin().next() is None
        with Stream(address, of_org(tenant), tenant.key, method="HEAD") as head:
            assert (head.status, head.response.read()) == (200, b"")
