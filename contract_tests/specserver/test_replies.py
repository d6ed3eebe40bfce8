"""Owns the proof that replies go out as they were meant, whole or in a stream."""

import asyncio
import threading
from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest

from contract_tests.specserver.calling import (
    bakery,
    call,
    minimal,
    scope,
    served,
)
from specserver import Problem, Reply, TooManyRequests, Unauthenticated, render_problem


@pytest.mark.parametrize(
    ("answer", "status", "media_type", "body"),
    [
        ({"a": [1, None]}, 200, "application/json", b'{"a":[1,null]}'),
        ([], 200, "application/json", b"[]"),
        (None, 204, None, b""),
        (Reply.ok("text"), 200, "application/json", b'"text"'),
        (Reply.created({}, "/x"), 201, "application/json", b"{}"),
        (Reply.accepted({}), 202, "application/json", b"{}"),
        (Reply.no_content(), 204, None, b""),
        (Reply.text("é"), 200, "text/plain; charset=utf-8", "é".encode()),
        (Reply(200, b'{"kept": "as it is"}'), 200, "application/json", b'{"kept": "as it is"}'),
        (Reply(200), 200, None, b""),
    ],
)
def test_answers_and_what_goes_out(
    answer: Any, status: int, media_type: str | None, body: bytes
) -> None:
    got = call(served(minimal({}), lambda: answer), "GET", "/thing")
    assert (got.status_code, got.headers.get("content-type"), got.content) == (
        status,
        media_type,
        body,
    )
    assert ("content-length" in got.headers) == (status != 204)


def test_a_header_may_be_sent_twice() -> None:
    reply = Reply(200, {}, {"Set-Cookie": ["a=1", "b=2"], "Cache-Control": "max-age=5"})
    got = call(served(minimal({}), lambda: reply), "GET", "/thing")
    assert got.headers.get_list("set-cookie") == ["a=1", "b=2"]
    assert got.headers.get_list("cache-control") == ["max-age=5"]


@pytest.mark.parametrize(
    "reply",
    [
        Reply(200, {}, {"X-Note": "a\r\nSet-Cookie: stolen=1"}),
        Reply(200, {"value": object()}),
        Reply(200, {"value": 2**70}),
        Reply(200, {1: "a key that is no text"}),
    ],
)
def test_a_reply_that_cannot_be_sent_is_a_500(reply: Reply) -> None:
    got = call(served(minimal({}), lambda: reply), "GET", "/thing")
    assert got.status_code == 500
    assert got.json()["code"] == "internal_error"
    assert "set-cookie" not in got.headers


def test_problems_carry_their_members() -> None:
    def refuse() -> None:
        raise Problem(
            409, "the oven is cold", code="oven_cold", headers={"Retry-After": "9"}, degrees=20
        )

    app = served(minimal({}), refuse, problem_type_prefix="https://bakery.example/problems/")
    got = call(app, "GET", "/thing")
    assert got.headers["retry-after"] == "9"
    assert got.json() == {
        "type": "https://bakery.example/problems/oven_cold",
        "title": "Oven cold",
        "status": 409,
        "detail": "the oven is cold",
        "code": "oven_cold",
        "request_id": got.headers["x-request-id"],
        "degrees": 20,
    }


def test_a_problem_guards_its_own_members() -> None:
    with pytest.raises(ValueError, match="request_id, type"):
        TooManyRequests("no", type="x", request_id="y")
    assert TooManyRequests().status == 429
    assert TooManyRequests().code == "too_many_requests"


def test_every_401_has_a_challenge() -> None:
    assert Unauthenticated().headers == {"WWW-Authenticate": "Bearer"}
    assert Unauthenticated(headers={"www-authenticate": "Basic"}).headers == {
        "www-authenticate": "Basic"
    }


def test_another_form_of_errors() -> None:
    def render(problem: Problem, request_id: str) -> Reply:
        return Reply(400 if problem.status == 422 else problem.status, {"error": problem.detail})

    app = bakery(problems=render, validate_responses=False)
    got = call(app, "GET", "/loaves?limit=x")
    assert (got.status_code, got.json()) == (400, {"error": "limit must be an integer"})
    assert call(app, "GET", "/nothing").json() == {"error": "no such path"}
    assert call(app, "GET", "/loaves", headers={}).json().keys() == {"error"}
    assert call(app, "PUT", "/loaves").json().keys() == {"error"}


def test_problems_are_rendered_by_one_function() -> None:
    reply = render_problem(Problem(418, "short and stout"), "req_1", type_prefix="urn:x:")
    assert reply.body["type"] == "urn:x:status_418"
    assert reply.media_type == "application/problem+json"


def test_a_repr_holds_no_body() -> None:
    assert "secret" not in repr(Reply.ok({"password": "secret"}))


def test_chunks_are_streamed_from_both_kinds_of_iterator() -> None:
    async def drip() -> AsyncIterator[bytes | str]:
        yield "one "
        await asyncio.sleep(0)
        yield b"two"

    assert call(bakery(), "GET", "/loaves/1/crumbs").text.splitlines()[2] == "crumb 2 of rye"
    app = served(minimal({}), lambda: Reply.stream(drip(), "text/plain"))
    got = call(app, "GET", "/thing")
    assert (got.text, got.headers["content-type"]) == ("one two", "text/plain")
    assert "content-length" not in got.headers


async def leave_after_the_first_chunk(app: Any) -> None:
    first = asyncio.Event()

    async def receive() -> Any:
        await first.wait()
        return {"type": "http.disconnect"}

    async def send(event: Any) -> None:
        if event.get("body"):
            first.set()

    await app(scope("GET", "/thing"), receive, send)


def test_an_endless_stream_ends_with_its_client() -> None:
    closed = threading.Event()

    def endless() -> Iterator[bytes]:
        try:
            while True:
                yield b"x"
        finally:
            closed.set()

    app = served(minimal({}), lambda: Reply.stream(endless()))
    asyncio.run(asyncio.wait_for(leave_after_the_first_chunk(app), 60))
    assert closed.wait(60)


def test_an_endless_async_stream_ends_with_its_client() -> None:
    closed: list[bool] = []

    async def endless() -> AsyncIterator[bytes]:
        try:
            while True:
                yield b"x"
                await asyncio.sleep(0)
        finally:
            closed.append(True)

    app = served(minimal({}), lambda: Reply.stream(endless()))
    asyncio.run(asyncio.wait_for(leave_after_the_first_chunk(app), 60))
    assert closed == [True]


def test_head_of_a_stream_reads_none_of_it() -> None:
    read: list[int] = []

    def numbers() -> Iterator[bytes]:
        read.append(1)
        yield b"x"

    app = served(minimal({}), lambda: Reply.stream(numbers()))
    assert call(app, "HEAD", "/thing").content == b""
    assert read == []


def test_a_stream_that_fails_is_cut_off_and_not_completed() -> None:
    def fails() -> Iterator[bytes]:
        yield b"half"
        raise RuntimeError("no more flour")

    app = served(minimal({}), lambda: Reply.stream(fails()))
    sent: list[Any] = []

    async def run() -> None:
        async def send(event: Any) -> None:
            sent.append(event)

        async def receive() -> Any:
            return await asyncio.Future()

        with pytest.raises(RuntimeError, match="no more flour"):
            await app(scope("GET", "/thing"), receive, send)

    asyncio.run(run())
    # The server sees the exception and breaks the connection, so nobody takes half for all.
    assert [event.get("more_body") for event in sent[1:]] == [True]
