"""Readers of streams: what they ask for, how fast they read, and where they go on."""

import threading
from contextlib import ExitStack
from typing import Any

import pytest
from sqlalchemy import delete
from sqlalchemy.orm import Session

from contract_tests.api.conftest import MakeHouse
from contract_tests.api.events.test_events import (
    NEVER,
    address,
    house,
    of_instance,
    of_org,
    streams_open,
    until,
    woken_only,
)
from contract_tests.api.harness import House
from contract_tests.api.streams import Address, Stream, happen, served
from handlers.events import events as handlers_events
from handlers.events.events import PAGE
from specserver import streaming
from storage.events import events

__all__ = ["address", "house", "woken_only"]


def test_a_stream_has_the_kinds_that_its_patterns_ask_for(house: House, address: Address) -> None:
    tenant = house.tenant()
    instance_id = house.instance(tenant)
    happen(house, tenant.org_id, instance_id)
    asked = f"?types=instance.re*,backup.*&after={events.FIRST}"
    refused = house.get(of_org(tenant) + asked, tenant.key)
    assert (refused.status_code, refused.json()["code"]) == (422, "event_kind_unknown")
    (told,) = refused.json()["errors"]
    assert told["parameter"] == "types"
    assert "'instance.re*' matches no kind" in told["message"]
    assert "instance.ready.v1" in told["message"]
    asked = f"?types=instance.ready.v1,backup.*&types=instance.paused.*&after={events.FIRST}"
    for path in (of_org(tenant), of_instance(tenant, instance_id)):
        with Stream(address, path + asked, tenant.key) as stream:
            kinds = [each["type"] for each in stream.begin().take(2)]
        assert kinds == ["instance.ready.v1", "instance.paused.v1"]
    # A client that connects again by the same URL has read further than it says.
    with Stream(address, of_org(tenant) + asked, tenant.key, last=stream.last) as again:
        made = happen(house, tenant.org_id, instance_id)
        assert [each["id"] for each in again.begin().take(1)] == made


def test_a_quiet_stream_goes_on_though_what_it_has_seen_is_kept_no_more(
    house: House, address: Address
) -> None:
    """Neither because nothing happens, nor because what happens is of no concern to it."""
    tenant = house.tenant()
    instance_id = house.instance(tenant)
    path = f"{of_org(tenant)}?types=backup.*"
    with Stream(address, path, tenant.key) as stream:
        begun = stream.begin().last
    happen(house, tenant.org_id, instance_id)
    with Stream(address, path, tenant.key, last=begun) as again:
        again.begin().skip()
        reached = again.last
    with house.database.write() as db:
        db.execute(delete(events.Event).where(events.Event.org_id == tenant.org_id))
    with Stream(address, path, tenant.key, last=begun) as late:
        assert late.status == 422, "what it has missed may have been of concern"
    with Stream(address, of_org(tenant), tenant.key, last=reached) as whole:
        whole.begin()
        made = happen(house, tenant.org_id, instance_id)
        assert [each["id"] for each in whole.take(1)] == made


def test_a_stream_of_few_kinds_is_told_how_far_it_has_come(
    house: House, address: Address, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(handlers_events, "TOLD_EVERY", 3)
    tenant = house.tenant()
    instance_id = house.instance(tenant)
    with Stream(address, f"{of_org(tenant)}?types=backup.*", tenant.key) as stream:
        begun = stream.begin().last
        happen(house, tenant.org_id, instance_id, 7)
        stream.skip()
        assert stream.last is not None
        assert begun is not None
        assert stream.last > begun


@pytest.mark.parametrize(
    ("query", "parameter", "code"),
    [
        ("types=", "types", "invalid"),
        ("types=" + ",".join(["*"] * 51), "types", "invalid"),
        ("types=" + "x" * 65, "types", "invalid"),
        ("types=instance.%2A%00", "types", "invalid"),
        ("types=%27%20OR%201%3D1", "types", "invalid"),
        ("after=evt_1", "after", "invalid"),
        ("after=evt_01ARZ3NDEKTSV4RRFFQ69G5FAV", "after", "event_unknown"),
        ("after=evt_00000000000000009999999999", "after", "event_unknown"),
        ("after=evt_0000000000ZZZZZZZZZZZZZZZZ", "after", "event_unknown"),
    ],
)
def test_what_is_no_pattern_and_no_event_is_refused(
    house: House, query: str, parameter: str, code: str
) -> None:
    tenant = house.tenant()
    refused = house.get(f"{of_org(tenant)}?{query}", tenant.key)
    assert refused.status_code == 422
    assert {each["parameter"] for each in refused.json()["errors"]} == {parameter}
    if code != "invalid":
        assert refused.json()["code"] == code


@pytest.mark.usefixtures("woken_only")
def test_those_of_one_credential_look_once_for_an_event(
    house: House, address: Address, monkeypatch: pytest.MonkeyPatch
) -> None:
    tenant = house.tenant()
    instance_id = house.instance(tenant)
    looks: list[int] = []
    look = events.after

    def counted(db: Session, org_id: str, seq: int, **named: Any) -> Any:
        looks.append(seq)
        return look(db, org_id, seq, **named)

    with ExitStack() as stack:
        streams = [
            stack.enter_context(Stream(address, of_org(tenant), tenant.key)).begin()
            for _ in range(40)
        ]
        happen(house, tenant.org_id, instance_id)
        assert all(stream.next() for stream in streams)
        monkeypatch.setattr(events, "after", counted)
        made = happen(house, tenant.org_id, instance_id)
        assert [stream.next() or {} for stream in streams] == [streams[0].seen] * 40
        assert streams[0].seen["id"] == made[0]
        # Some begin before all have been woken, and each looks whether there is more.
        assert len(looks) < 40


def test_whoever_reads_nothing_holds_neither_memory_nor_a_thread_and_misses_nothing(
    house: House, address: Address, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A client of a real socket that takes nothing while thousands of events come."""
    monkeypatch.setattr(streaming, "STALLED_S", 1.0)
    tenant = house.tenant()
    instance_id = house.instance(tenant)
    text, count = "x" * 8_000, 1_500
    looked: list[int] = []
    look = events.after

    def counted(db: Session, org_id: str, seq: int, **named: Any) -> Any:
        looked.append(seq)
        return look(db, org_id, seq, **named)

    with Stream(address, of_org(tenant), tenant.key, receives=4_096) as stream:
        stream.begin()
        monkeypatch.setattr(events, "after", counted)
        with house.database.write() as db:
            for _ in range(count):
                told = {"instance_id": instance_id, "operation": "run", "status": "failed"}
                told |= {"reason": text}
                events.append(db, tenant.org_id, "instance.failed.v1", told, instance_id)
        until(lambda: streams_open(house) == 0)
        # Of twelve megabytes it was read what the buffers of both ends hold, a page at a time.
        assert len(looked) < count / PAGE / 2
        until(lambda: not house.app.threads._load)
        found = stream.rest()
    with Stream(address, of_org(tenant), tenant.key, last=stream.last) as again:
        again.begin()
        found += again.take(count - len(found))
    with house.database.read() as db:
        written = events.after(db, tenant.org_id, 2, scope=None, limit=count + 1)
    assert [one["id"] for one in found] == [one.id for one in written]


@pytest.mark.every_database
def test_it_goes_on_in_another_replica_without_gap_or_double(make_house: MakeHouse) -> None:
    """Two processes' worth of the API on one database, and writers through both."""
    replicas = make_house(stream_ttl_s=NEVER), make_house(stream_ttl_s=NEVER)
    tenant = replicas[0].tenant()
    instance_id = replicas[0].instance(tenant)
    each, disconnects = 30, 20
    with served(replicas[0]) as one, served(replicas[1]) as other:
        begun = Stream(one, of_org(tenant), tenant.key).begin()
        begun.close()
        last, found = begun.last, list[str]()
        writers = [
            threading.Thread(target=happen, args=(house, tenant.org_id, instance_id, each))
            for house in (*replicas, *replicas)
        ]
        for writer in writers:
            writer.start()
        for number in range(disconnects):
            address = (one, other)[number % 2]
            with Stream(address, of_org(tenant), tenant.key, last=last) as stream:
                found += [event["id"] for event in stream.begin().take(4 * each // disconnects)]
                last = stream.last
        for writer in writers:
            writer.join()
    with replicas[0].database.read() as db:
        seq = events.newest(db, tenant.org_id)[0] - 4 * each
        written = events.after(db, tenant.org_id, seq, scope=None, limit=4 * each)
    assert found == [event.id for event in written]
