"""Owns the proof that the boundary holds the request, and decides in its own order."""

import asyncio
import threading
from typing import Any

import pytest

from contract_tests.specserver.calling import (
    authorized,
    bakery,
    call,
    minimal,
    package,
    play,
    request_event,
    scope,
    served,
)
from specserver import App, Exchange, Forbidden, Invalid, PollAgain, Reply


def test_a_boundary_may_refuse_before_anything_is_validated() -> None:
    def refuse(exchange: Exchange) -> Reply:
        raise Forbidden(f"not you, not {exchange.operation.id}")

    app = bakery(boundary=refuse, validate_responses=False)
    for options in ({"json": {"oven": 1}}, {"content": b"{"}, {"headers": {"accept": "a/b"}}):
        answer = call(app, "POST", "/loaves?x=1", **options)
        assert (answer.status_code, answer.json()["detail"]) == (403, "not you, not loaves.bake")


@pytest.mark.parametrize("refuses", [False, True])
def test_what_is_held_until_the_end_is_given_back_once(refuses: bool) -> None:
    ended: list[str] = []

    def boundary(exchange: Exchange) -> Reply:
        exchange.at_end(lambda: ended.append("first"))
        exchange.at_end(lambda: ended.append("second"))
        if refuses:
            raise Forbidden("not you")
        assert ended == []
        return exchange.invoke()

    app = bakery(boundary=boundary, validate_responses=False)
    answer = call(app, "GET", "/loaves")
    assert answer.status_code == (403 if refuses else 200)
    assert ended == ["first", "second"]


def test_validation_is_done_once_and_refuses_the_same_way_again() -> None:
    refusals: list[Invalid] = []

    def insist(exchange: Exchange) -> Reply:
        for _ in range(2):
            try:
                exchange.validate()
            except Invalid as invalid:
                refusals.append(invalid)
        raise refusals[0]

    assert call(bakery(boundary=insist), "GET", "/loaves?limit=0").status_code == 422
    assert refusals[0] is refusals[1]


def test_the_boundary_sees_the_request_and_puts_its_own_arguments_first() -> None:
    seen: dict[str, Any] = {}

    def boundary(exchange: Exchange) -> Reply:
        seen.update(
            path=exchange.path,
            body=exchange.body_bytes,
            client=exchange.request.client,
            query=exchange.request.query_string,
            host=exchange.request.headers["HOST"],
            rule=exchange.operation.extension("rule"),
            tag=exchange.operation.tag,
            thread=threading.current_thread() is not threading.main_thread(),
        )
        return exchange.invoke("db", 7)

    def handler(db: str, number: int, item_id: int, flag: bool, body: Any) -> list[Any]:
        return [db, number, item_id, flag, body]

    parameters = [
        {"name": "item_id", "in": "path", "required": True, "schema": {"type": "integer"}},
        {"name": "flag", "in": "query", "schema": {"type": "boolean", "default": True}},
    ]
    content: dict[str, Any] = {"application/json": {}}
    operation = {
        "parameters": parameters,
        "requestBody": {"content": content},
        "x-rule": ["a"],
        "tags": ["Things"],
    }
    app = served(minimal(operation, "/thing/{item_id}", method="post"), handler, boundary=boundary)
    answer = call(app, "POST", "/thing/5?flag=false", json={"a": 1})
    assert answer.json() == ["db", 7, 5, False, {"a": 1}]
    assert seen == {
        "path": {"item_id": "5"},
        "body": b'{"a":1}',
        "client": "127.0.0.1",
        "query": "flag=false",
        "host": "bakery",
        "rule": ["a"],
        "tag": "Things",
        "thread": True,
    }


def test_a_handler_may_be_given_by_place_what_it_could_have_by_name() -> None:
    app = served(
        minimal({}),
        lambda exchange, request: [type(exchange).__name__, request.method],
        boundary=lambda exchange: exchange.invoke(exchange),
    )
    assert call(app, "GET", "/thing").json() == ["Exchange", "GET"]


@pytest.mark.parametrize("boundary_kind", ["sync", "async"])
@pytest.mark.parametrize("handler_kind", ["sync", "async"])
def test_boundaries_and_handlers_of_both_kinds_go_together(
    boundary_kind: str, handler_kind: str
) -> None:
    where: list[str] = []

    def on_thread(greeting: str) -> dict[str, str]:
        where.append(threading.current_thread().name)
        return {"said": greeting}

    async def on_loop(greeting: str) -> dict[str, str]:
        await asyncio.sleep(0)
        where.append(threading.current_thread().name)
        return {"said": greeting}

    async def async_boundary(exchange: Exchange) -> Reply:
        return await exchange.invoke_async("hello")

    def sync_boundary(exchange: Exchange) -> Reply:
        return exchange.invoke("hello")

    app = served(
        minimal({}),
        on_thread if handler_kind == "sync" else on_loop,
        boundary=sync_boundary if boundary_kind == "sync" else async_boundary,
    )
    assert call(app, "GET", "/thing").json() == {"said": "hello"}
    assert where == ["specserver" if handler_kind == "sync" else "MainThread"]


def test_a_callable_object_may_be_a_boundary() -> None:
    class Boundary:
        async def __call__(self, exchange: Exchange) -> Reply:
            return await exchange.invoke_async()

    app = served(minimal({}), lambda: {"ok": True}, boundary=Boundary())
    assert call(app, "GET", "/thing").json() == {"ok": True}


def test_polling_keeps_state_and_counts_attempts() -> None:
    attempts: list[tuple[int, int]] = []

    def boundary(exchange: Exchange) -> Reply:
        exchange.state["seen"] = exchange.state.get("seen", 0) + 1
        attempts.append((exchange.attempt, exchange.state["seen"]))
        return exchange.invoke()

    answer = call(bakery(boundary=boundary), "GET", "/loaves/1/await?attempts=3")
    assert answer.json() == {"attempts": 3, "loaf": 1}
    assert attempts == [(0, 1), (1, 2), (2, 3), (3, 4)]


def test_polling_holds_no_thread() -> None:
    """Twenty requests wait on one thread, and another one is answered meanwhile."""
    waiting = 0
    all_wait, opened = threading.Event(), threading.Event()

    def boundary(exchange: Exchange) -> Reply:
        nonlocal waiting
        if exchange.request.headers.get("role") == "opener":
            opened.set()
        elif not opened.is_set():
            waiting += exchange.attempt == 0
            if waiting == 20:
                all_wait.set()
            raise PollAgain(0.001)
        return Reply.ok(waiting)

    async def many() -> list[int]:
        app = served(minimal({}), lambda: None, boundary=boundary, threads=1)
        polls = [play(app, scope("GET", "/thing"), [request_event()]) for _ in range(20)]
        tasks = [asyncio.ensure_future(poll) for poll in polls]
        await asyncio.to_thread(all_wait.wait, 60)
        opener = scope("GET", "/thing", authorized(role="opener"))
        sent = [await play(app, opener, [request_event()]), *await asyncio.gather(*tasks)]
        return [events[0]["status"] for events in sent]

    assert asyncio.run(asyncio.wait_for(many(), 100)) == [200] * 21


def test_a_poll_is_dropped_when_its_client_is_gone() -> None:
    attempts = 0

    def boundary(_exchange: Exchange) -> Reply:
        nonlocal attempts
        attempts += 1
        raise PollAgain(60)

    app = served(minimal({}), lambda: None, boundary=boundary)
    given = scope("GET", "/thing")
    assert asyncio.run(asyncio.wait_for(play(app, given, [], then_gone=True), 60)) == []
    assert attempts == 1


def test_a_handler_can_learn_that_its_client_is_gone() -> None:
    learned: list[str] = []

    async def handler(exchange: Exchange) -> None:
        await exchange.disconnected()
        learned.append("gone")

    app = served(minimal({}), handler)
    asyncio.run(play(app, scope("GET", "/thing"), [request_event()], then_gone=True))
    assert learned == ["gone"]


def test_the_served_description_is_at_hand_for_a_handler() -> None:
    def boundary(exchange: Exchange) -> Reply:
        return Reply(200, exchange.public_document)

    document = minimal({}, "/openapi.json")
    app = App(document, handlers=package(do=lambda: None), boundary=boundary)
    assert call(app, "GET", "/openapi.json").json() == document
