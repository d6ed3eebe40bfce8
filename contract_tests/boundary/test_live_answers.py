"""Answers that have no end: what is sent, what is asked again, and what ends them."""

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from typing import Any, cast

import pytest
from structlog.testing import capture_logs

from control.boundary import live_answers
from control.boundary.event_listener import EventListener, Follower
from control.boundary.live_answers import KEEP_ALIVE, Followed, StreamPlace, StreamView, follow
from control.boundary.shared_looks import SharedLooks
from specserver import Exchange, Forbidden, Problem, TooManyRequests, Unavailable
from storage.access.scopes import Scope
from storage.database import Database

BUSY = (TooManyRequests("later"), Unavailable("not now"))


class Source:
    """Texts that are there after a number; a Problem in their place is raised, once."""

    def __init__(self, *texts: str | Problem, expires_in_s: float | None = None) -> None:
        self.texts = list(texts)
        self.calls = 0
        self.asked: list[int] = []
        self.now = datetime(2030, 1, 1, tzinfo=UTC)
        expires_at = None if expires_in_s is None else self.now + timedelta(seconds=expires_in_s)
        key = SimpleNamespace(expires_at=expires_at)
        self.caller = SimpleNamespace(support_grants=(), key=key, session=None)
        self.org = None
        self.db = SimpleNamespace(info={})
        self.scope: Scope | None = None
        self.reads: list[int | None] = []
        self.reads_one_state = False

    @contextmanager
    def again(self) -> Iterator[Any]:
        self.calls += 1
        yield self

    @contextmanager
    def read(self) -> Iterator[Any]:
        """As a database."""
        yield self.db

    def step(self, view: StreamView, place: StreamPlace) -> tuple[str, StreamPlace, bool]:
        at = place.seq
        assert (view.org_id, view.scope) == ("org_1", self.scope)
        self.asked.append(at)
        self.reads.append(view.up_to)
        if at >= len(self.texts) or at == view.up_to:
            return "", place, False
        text = self.texts[at]
        if isinstance(text, Problem):
            self.texts[at] = "after"
            raise text
        return text, StreamPlace(at + 1), at + 1 < len(self.texts)


class Listener:
    def __init__(self, *, is_listening: bool = True) -> None:
        self.follower: Follower | None = None
        self.wakers: tuple[str, ...] = ()
        self.is_listening = is_listening

    @contextmanager
    def following(self, wakers: tuple[str, ...]) -> Iterator[Follower]:
        self.wakers, self.follower = wakers, Follower()
        yield self.follower
        self.follower = None


def followed(source: Source, for_s: float = 60, credential: str = "key_1") -> Followed:
    return Followed(
        again=source.again,
        step=source.step,
        begin=StreamPlace(0),
        database=cast("Database", source),
        org_id="org_1",
        wakers=("org_1", "usr_1"),
        credential_id=credential,
        shared_as="all",
        first="first",
        for_s=for_s,
    )


def at_once() -> Exchange:
    async def in_turn(act: Callable[[], Any]) -> Any:
        return act()

    operation = SimpleNamespace(id="things.follow")
    return cast("Exchange", SimpleNamespace(in_turn=in_turn, operation=operation))


def sent(
    source: Source,
    count: int,
    *,
    for_s: float = 60,
    then: Callable[[Listener], None] | None = None,
    is_listening: bool = True,
) -> list[str]:
    """The first so many texts, or all; with `then`, which happens after them, one more."""
    listener = Listener(is_listening=is_listening)
    listening, exchange = cast("EventListener", listener), at_once()

    async def read() -> list[str]:
        stream = follow(exchange, followed(source, for_s), listening, SharedLooks())
        found = []
        async for text in stream:
            assert listener.wakers == ("org_1", "usr_1")
            found.append(text)
            if len(found) == count and then is not None:
                then(listener)
            elif len(found) >= count:
                break
        return found

    return asyncio.run(asyncio.wait_for(read(), 90))


def test_what_there_is_comes_at_once_and_in_order() -> None:
    source = Source("a", "b")
    assert sent(source, 3) == ["first", "a", "b"]
    assert source.asked == [0, 1]
    # The right is looked at once more before anything is sent.
    assert source.calls == 4


def test_while_nothing_comes_the_stream_is_kept_alive_and_asks_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(live_answers, "KEEP_ALIVE_S", 0.01)
    source = Source("a")
    assert sent(source, 4) == ["first", "a", KEEP_ALIVE, KEEP_ALIVE]
    assert source.asked == [0]


def test_while_nobody_tells_it_looks_of_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(live_answers, "UNTOLD_LOOK_EVERY_S", 0.01)
    monkeypatch.setattr(live_answers, "KEEP_ALIVE_S", 0.05)
    source = Source("a")
    assert sent(source, 4, is_listening=False) == ["first", "a", KEEP_ALIVE, KEEP_ALIVE]
    assert set(source.asked[1:]) == {1}
    assert len(source.asked) > 1


def test_it_looks_when_the_right_ends_by_itself() -> None:
    source = Source("a", expires_in_s=0.05)

    def expires(_listener: Listener) -> None:
        source.texts.append(Forbidden("expired"))

    assert sent(source, 2, then=expires) == ["first", "a", ": ended: forbidden\n\n"]
    assert source.asked == [0, 1]


def test_who_is_woken_by_what_is_of_no_concern_is_kept_alive(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(live_answers, "KEEP_ALIVE_S", 0.05)
    source = Source("a")

    def others(listener: Listener) -> None:
        if listener.follower is not None:
            listener.follower.wake()
            asyncio.get_running_loop().call_later(0.005, others, listener)

    assert sent(source, 2, then=others) == ["first", "a", KEEP_ALIVE]
    assert len(source.asked) > 2


def test_whoever_is_woken_looks_at_once_and_sends_nothing_between() -> None:
    source = Source("a")

    def comes(listener: Listener) -> None:
        source.texts.append("b")
        assert listener.follower is not None
        asyncio.get_running_loop().call_later(0.05, listener.follower.wake)

    assert sent(source, 2, then=comes) == ["first", "a", "b"]


@pytest.mark.parametrize("problem", BUSY, ids=["429", "503"])
def test_a_service_that_is_busy_is_asked_again(
    problem: Problem, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(live_answers, "UNTOLD_LOOK_EVERY_S", 0.01)
    source = Source("a", problem)
    assert sent(source, 3) == ["first", "a", "after"]
    assert source.asked == [0, 1, 1]


def test_it_ends_with_the_right_and_with_its_time(monkeypatch: pytest.MonkeyPatch) -> None:
    with capture_logs() as logs:
        told = ": ended: forbidden\n\n"
        assert sent(Source("a", Forbidden("no more"), "b"), 9) == ["first", "a", told]
    ended_by_right = {"event": "stream ended", "operation": "things.follow", "code": "forbidden"}
    assert logs == [{**ended_by_right, "log_level": "info"}]
    assert sent(Source("a"), 9, for_s=0) == ["first"]
    monkeypatch.setattr(live_answers, "KEEP_ALIVE_S", 0.01)
    ended = sent(Source(), 999, for_s=0.1)
    assert ended[0] == "first"
    assert {*ended[1:]} <= {KEEP_ALIVE}
    assert len(ended) < 999


def hears(seq: int | None, *texts: str | Problem) -> Callable[[Source, Listener], None]:
    """What is committed then, and told: with its number, or as a change of rights."""

    def happens(source: Source, listener: Listener) -> None:
        source.texts.extend(texts)
        assert listener.follower is not None
        listener.follower.wake(seq)

    return happens


def told(source: Source, *happenings: Callable[[Source, Listener], None]) -> list[str]:
    """What is sent when these happen while the stream waits, after what there was at first."""

    def then(listener: Listener) -> None:
        for happens in happenings:
            happens(source, listener)

    return sent(source, 2, then=then)[2:]


def test_what_is_heard_of_is_sent_without_asking_for_the_right_again() -> None:
    source = Source("a")
    assert told(source, hears(2, "b")) == ["b"]
    assert (source.calls, source.reads) == (2, [None, 2])


def test_nothing_is_read_beyond_what_was_heard_of() -> None:
    """What is committed after it may be later than a change of rights that was not heard of yet."""
    source = Source("a")
    assert told(source, hears(2, "b", "c")) == ["b"]
    assert source.reads == [None, 2]


def test_a_change_of_rights_is_looked_at_before_anything_is_sent() -> None:
    for happenings in (
        [hears(None), hears(2, Forbidden("no more"))],
        [hears(2, Forbidden("no more")), hears(None)],
    ):
        source = Source("a")
        assert told(source, *happenings) == [": ended: forbidden\n\n"]
        assert source.reads == [None, None]


def test_what_was_read_before_it_was_told_is_not_read_again() -> None:
    source = Source("a")
    assert told(source, hears(1), lambda *_: source.texts.append("b"), hears(None)) == ["b"]
    assert source.reads == [None, None]


def test_more_than_a_page_is_read_to_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(live_answers, "KEEP_ALIVE_S", 0.01)
    source = Source("a", "b", "c")
    assert sent(source, 5)[:4] == ["first", "a", "b", "c"]
    assert told(source := Source("a"), hears(4, "b", "c", "d")) == ["b"]
    assert source.reads == [None, 4]


def test_a_service_that_was_busy_is_asked_for_the_right_and_not_only_for_what_is_new(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(live_answers, "UNTOLD_LOOK_EVERY_S", 0.01)
    source = Source("a", "b")

    def fails(source: Source, listener: Listener) -> None:
        source.texts.append(Unavailable("not now"))
        hears(3)(source, listener)

    assert sent(source, 3, then=lambda listener: fails(source, listener))[3:] == ["after"]
    assert source.reads == [None, None, 3, None]


@pytest.mark.parametrize(("scopes", "reads"), [((None, None), 1), ((None, Scope()), 2)])
def test_what_is_new_is_read_once_for_all_who_see_as_much(scopes: Any, reads: int) -> None:
    async def check() -> None:
        sources = [Source("a"), Source("a")]
        listeners = [Listener(), Listener()]
        looks = SharedLooks()

        async def later(act: Callable[[], Any]) -> Any:
            await asyncio.sleep(0.01)
            return act()

        exchange = cast(
            "Exchange",
            SimpleNamespace(in_turn=later, operation=SimpleNamespace(id="things.follow")),
        )
        streams = []
        for number, (source, listener) in enumerate(zip(sources, listeners, strict=True)):
            source.scope = scopes[number]
            each = followed(source, credential=f"key_{number}")
            streams.append(follow(exchange, each, cast("EventListener", listener), looks))
        for stream in streams:
            assert [await anext(stream), await anext(stream)] == ["first", "a"]
        waiting = [asyncio.ensure_future(anext(stream)) for stream in streams]
        await asyncio.sleep(0.01)
        for source, listener in zip(sources, listeners, strict=True):
            hears(2, "b")(source, listener)
        assert await asyncio.gather(*waiting) == ["b", "b"]
        assert sum(source.reads.count(2) for source in sources) == reads
        for stream in streams:
            await stream.aclose()  # type: ignore[attr-defined]

    asyncio.run(asyncio.wait_for(check(), 30))


def test_a_follower_is_woken_by_its_organization_and_its_user_alone() -> None:
    async def check() -> None:
        listener = EventListener(cast("Database", None))
        # No thread looks at a database, and wakes them too.
        listener._listening = True
        with (
            listener.following(("org_1", "usr_1")) as mine,
            listener.following(("org_2", "usr_1")) as other,
        ):
            listener._wake({"org_1": 7, "org_3": 9})
            assert await mine.wait(30)
            assert not await other.wait(0.05)
            assert mine.take() == (7, False)
            assert not await mine.wait(0)
            listener._wake({"usr_1": None})
            assert await mine.wait(30)
            assert await other.wait(30)
            assert (mine.take(), other.take()) == ((7, True), (0, True))
            assert mine.take() == (7, False)
        assert listener._followed() == []

    asyncio.run(check())


def test_those_who_would_see_the_same_look_once_and_never_into_the_past() -> None:
    """Whoever comes while a look is under way was perhaps woken by what it has not seen."""

    async def check() -> None:
        looks, seen = SharedLooks(), iter(range(9))
        ready = asyncio.Event()

        async def in_turn(act: Callable[[], Any]) -> Any:
            await ready.wait()
            result = act()
            await asyncio.sleep(0.01)
            return result

        exchange = cast("Exchange", SimpleNamespace(in_turn=in_turn))

        def look() -> "asyncio.Future[int]":
            return asyncio.ensure_future(looks.look("same", exchange, lambda: next(seen)))

        first = [look(), look()]
        await asyncio.sleep(0)
        first[0].cancel()
        ready.set()
        await asyncio.sleep(0.005)
        later = look()
        assert await first[1] == 0
        assert await later == 1
        assert looks._waiting == {}

    asyncio.run(check())
