"""Answers that last: what is sent, what is asked again, and what ends them."""

import asyncio
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any, cast

import pytest
from structlog.testing import capture_logs

from control.boundary import streamed_answers
from control.boundary.event_listener import EventListener, Follower
from control.boundary.streamed_answers import KEEP_ALIVE, LOOK_EVERY_S, PageIterator, follow
from specserver import Exchange, Forbidden, Problem, TooManyRequests, Unavailable
from storage.database import Database

BUSY = (TooManyRequests("later"), Unavailable("not now"))


class Source:
    """Texts that are there after a number; a Problem in their place is raised, once."""

    def __init__(self, *texts: str | Problem) -> None:
        self.texts = list(texts)
        self.calls = 0
        self.asked: list[int] = []

    @contextmanager
    def again(self) -> Iterator[Any]:
        self.calls += 1
        yield self

    def step(self, call: Any, at: int) -> tuple[str, int | None]:
        assert call is self
        self.asked.append(at)
        if at >= len(self.texts):
            return "", None
        text = self.texts[at]
        if isinstance(text, Problem):
            self.texts[at] = "after"
            raise text
        return text, at + 1


class Listener:
    def __init__(self) -> None:
        self.follower: Follower | None = None
        self.org_id = ""

    @contextmanager
    def following(self, org_id: str) -> Iterator[Follower]:
        self.org_id, self.follower = org_id, Follower()
        yield self.follower
        self.follower = None


def sent(
    source: Source, count: int, *, for_s: float = 60, then: Callable[[Listener], None] | None = None
) -> list[str]:
    """The first so many texts, or all; with `then`, which happens after them, one more."""
    listener = Listener()

    async def in_turn(act: Callable[[], Any]) -> Any:
        return act()

    operation = SimpleNamespace(id="things.follow")
    exchange = cast("Exchange", SimpleNamespace(in_turn=in_turn, operation=operation))

    async def read() -> list[str]:
        stream = follow(
            exchange,
            source.again,
            source.step,
            0,
            event_listener=cast("EventListener", listener),
            org_id="org_1",
            first="first",
            for_s=for_s,
        )
        found = []
        async for text in stream:
            assert listener.org_id == "org_1"
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


def test_while_nothing_comes_the_stream_is_kept_alive(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(streamed_answers, "LOOK_EVERY_S", 0.01)
    source = Source("a")
    assert sent(source, 4) == ["first", "a", KEEP_ALIVE, KEEP_ALIVE]
    assert set(source.asked[1:]) == {1}
    assert source.calls == len(source.asked) + 1


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
    monkeypatch.setattr(streamed_answers, "LOOK_EVERY_S", 0.01)
    source = Source("a", problem)
    assert sent(source, 4) == ["first", "a", KEEP_ALIVE, "after"]
    assert source.asked == [0, 1, 1]


def test_it_ends_with_the_right_and_with_its_time(monkeypatch: pytest.MonkeyPatch) -> None:
    with capture_logs() as logs:
        assert sent(Source("a", Forbidden("no more"), "b"), 9) == ["first", "a"]
    ended_by_right = {"event": "stream ended", "operation": "things.follow", "code": "forbidden"}
    assert logs == [{**ended_by_right, "log_level": "info"}]
    assert sent(Source("a"), 9, for_s=0) == ["first"]
    monkeypatch.setattr(streamed_answers, "LOOK_EVERY_S", 0.01)
    ended = sent(Source(), 999, for_s=0.1)
    assert ended[0] == "first"
    assert {*ended[1:]} <= {KEEP_ALIVE}
    assert len(ended) < 999


@pytest.mark.parametrize(("left_s", "waits_s"), [(999, LOOK_EVERY_S), (2, 2), (0, 0), (-9, 0)])
def test_it_looks_of_itself_every_few_seconds_and_at_its_end(left_s: float, waits_s: float) -> None:
    asked: list[float] = []

    async def wait(timeout_s: float) -> bool:
        asked.append(timeout_s)
        return False

    follower = cast("Follower", SimpleNamespace(wait=wait))
    before = time.monotonic()
    assert not asyncio.run(streamed_answers._come(follower, before + left_s))
    took_s = time.monotonic() - before
    assert max(0, min(LOOK_EVERY_S, left_s - took_s)) <= asked[0] <= waits_s


def test_pages_follow_one_another_until_there_is_none() -> None:
    def step(call: Any, at: int) -> tuple[str, int | None]:
        assert call is source
        return f"page {at}", at + 1 if at < 2 else None

    source = Source()
    pages = PageIterator(source.again, step, 0)
    assert source.calls == 0
    assert list(pages) == ["page 0", "page 1", "page 2"]
    assert source.calls == 3
    with pytest.raises(StopIteration):
        next(pages)


def test_a_follower_is_woken_by_its_organization_alone() -> None:
    async def check() -> None:
        listener = EventListener(cast("Database", None))
        # No thread looks at a database, and wakes them too.
        listener._listening = True
        with listener.following("org_1") as mine, listener.following("org_2") as other:
            listener._wake(["org_1", "org_3"])
            assert await mine.wait(30)
            assert not await other.wait(0.05)
            mine.forget()
            assert not await mine.wait(0)
        assert listener._followed() == []

    asyncio.run(check())
