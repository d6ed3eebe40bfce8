"""Who is woken when events were committed, and what happens while nobody can be told of them."""

import asyncio
import sqlite3
import threading
from types import SimpleNamespace
from typing import cast

import pytest
from structlog.testing import capture_logs

from contract_tests.boundary.small_api import SmallApi
from control.boundary import event_listener
from control.boundary.event_listener import EventListener, Follower, WakeNews
from storage.access import memberships
from storage.database import Database
from storage.errors import StorageUnavailable
from storage.events import events

IN_S = 30


def test_whoever_no_longer_waits_is_not_woken() -> None:
    async def begin() -> Follower:
        return Follower()

    listener = EventListener(cast("Database", None))
    listener._followers["org_1"].add(asyncio.run(begin()))
    listener._wake({"org_1": 1})


def test_a_wait_that_is_cancelled_ends_also_as_it_is_woken() -> None:
    async def check() -> None:
        follower = Follower()
        waiting = asyncio.ensure_future(follower.wait(IN_S))
        await asyncio.sleep(0)
        follower.wake()
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        assert await follower.wait(0)

    asyncio.run(check())


def test_where_it_fails_it_is_told_and_tried_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(event_listener, "AGAIN_S", 0)
    listener = EventListener(cast("Database", SimpleNamespace(dialect="sqlite")))
    woken: list[bool] = []

    listener._followers["org_1"].add(cast("Follower", None))

    def wake(told: dict[str, int | None]) -> None:
        assert told == {"org_1": None}
        woken.append(listener.is_listening)

    monkeypatch.setattr(listener, "_wake", wake)
    failures = iter(
        [
            StorageUnavailable("no connection"),
            sqlite3.OperationalError("locked"),
            ValueError("not foreseen"),
        ]
    )

    def watch() -> None:
        listener.is_listening = True
        for failure in failures:
            raise failure
        listener._followers.clear()

    monkeypatch.setattr(listener, "_watch", watch)
    with capture_logs() as logs:
        listener._listen()
    # What was not foreseen must not end the thread: until a restart nobody would be woken.
    assert [(each["event"], each["error"]) for each in logs] == [
        ("not told of events for a moment", error)
        for error in ("no connection", "locked", "not foreseen")
    ]
    # Each time its followers go and look themselves, and know that they must.
    assert woken == [False, False, False]
    assert not listener.is_listening


def test_where_no_thread_begins_the_next_follower_begins_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    listener = EventListener(cast("Database", SimpleNamespace(dialect="sqlite")))
    listened = threading.Event()

    def fails(_thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    async def follow() -> None:
        with listener.following(["org_1"]):
            await asyncio.to_thread(listened.wait, 10)

    with monkeypatch.context() as full:
        full.setattr(threading.Thread, "start", fails)
        with pytest.raises(RuntimeError):
            asyncio.run(follow())
    assert not listener._followers

    monkeypatch.setattr(listener, "_listen", listened.set)
    asyncio.run(follow())
    assert listened.is_set()


def emit(api: SmallApi, org_id: str) -> None:
    with api.database.write() as db:
        events.append(db, org_id, "instance.paused.v1", {})


def grant(api: SmallApi, org_id: str) -> None:
    """A further member: what is given is told as well as what is taken away."""
    person = api.person()
    with api.database.write() as db:
        memberships.create(db, org_id, person.id, "member")


async def told_of(follower: Follower, seq: int) -> WakeNews:
    """Once it is told of that event, or that rights have changed."""
    while True:
        assert await follower.wait(IN_S)
        told = follower.take()
        if told.seq >= seq or told.rights_changed:
            return told


def test_each_organization_is_told_of_its_own_events_from_the_first(api: SmallApi) -> None:
    ann = api.person()
    quiet, other = api.org((ann, "owner")), api.org((ann, "owner"))
    emit(api, quiet)
    listener = api.boundary._event_listener

    async def check() -> None:
        with listener.following([quiet]) as before, listener.following([other]) as new:
            # Of what was committed before it listened, it tells once.
            assert await before.wait(IN_S)
            before.take()
            # Whoever follows only now is told that there may be something, or of the event itself.
            await asyncio.to_thread(emit, api, other)
            await told_of(new, 1)
            for seq in (2, 3):
                await asyncio.to_thread(emit, api, other)
                assert await told_of(new, seq) == (seq, False)
                assert not await before.wait(0)
            await asyncio.to_thread(grant, api, other)
            assert await told_of(new, 4) == (3, True)

    asyncio.run(check())
