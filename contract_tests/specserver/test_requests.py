"""Owns the proof that requests are met as HTTP and the document say."""

import asyncio
import re
from typing import Any

import pytest

from contract_tests.specserver.calling import (
    TOKEN,
    authorized,
    bakery,
    call,
    minimal,
    play,
    request_event,
    scope,
    served,
)
from specserver import Headers
from specserver.requests import new_request_id

LOAF = {"name": "spelt", "grams": 500}
JSON = {"content_type": "application/json"}


def test_a_request_is_bound_and_answered() -> None:
    app = bakery()
    baked = call(app, "POST", "/loaves", json=LOAF, headers=authorized(idempotency_key="k1"))
    assert baked.status_code == 201
    assert baked.headers["location"] == "/loaves/2"
    assert baked.json() == {"id": 2, "key": "k1", "sliced": False, "tags": [], **LOAF}
    listed = call(app, "GET", "/loaves?sort=grams&limit=1&sliced=false").json()
    assert [loaf["name"] for loaf in listed["items"]] == ["spelt"]
    assert call(app, "GET", "/loaves?tag=dark&tag=x").json() == {"items": []}
    assert call(app, "DELETE", "/loaves/2").status_code == 204
    assert call(app, "GET", "/loaves/2").status_code == 404


def test_defaults_are_not_shared_between_requests() -> None:
    app = bakery()
    first = call(app, "POST", "/loaves", json=LOAF).json()
    app.state["loaves"][first["id"]]["tags"].append("mine")
    assert call(app, "POST", "/loaves", json=LOAF | {"name": "oat"}).json()["tags"] == []


def test_every_violation_is_told_at_once() -> None:
    wrong = {"name": "X", "grams": "many", "oven": 1, "slices": {"next": {"thickness": 0}}}
    answer = call(
        bakery(), "POST", "/loaves?limit=1", json=wrong, headers=authorized(idempotency_key="-")
    )
    assert answer.status_code == 422
    assert answer.headers["content-type"] == "application/problem+json"
    errors = answer.json()["errors"]
    assert {(e.get("pointer") or e["parameter"], e["keyword"]) for e in errors} == {
        ("limit", "unknown"),
        ("Idempotency-Key", "pattern"),
        ("/name", "minLength"),
        ("/name", "pattern"),
        ("/grams", "type"),
        ("/oven", "unevaluatedProperties"),
        ("/slices/next/thickness", "exclusiveMinimum"),
    }


@pytest.mark.parametrize(
    ("method", "path", "options", "status", "code"),
    [
        ("GET", "/cakes", {}, 404, "no_such_path"),
        ("GET", "/loaves/", {}, 404, "no_such_path"),
        ("GET", "/loaves/zero", {}, 404, "not_found"),
        ("GET", "/loaves/0", {}, 404, "not_found"),
        ("GET", "/loaves/99", {}, 404, "not_found"),
        ("PUT", "/loaves", {}, 405, "method_not_allowed"),
        ("TRACE", "/loaves", {}, 405, "method_not_allowed"),
        ("GET", "/loaves", {"headers": authorized(accept="text/html")}, 406, "not_acceptable"),
        ("POST", "/loaves", {"content": b"{"}, 415, "unsupported_media_type"),
        ("POST", "/loaves", {"content": b"{", "headers": authorized(**JSON)}, 400, None),
        ("POST", "/loaves", {"content": b"NaN", "headers": authorized(**JSON)}, 400, None),
        ("POST", "/loaves", {"content": b'"\xff"', "headers": authorized(**JSON)}, 400, None),
        ("POST", "/loaves", {"headers": authorized(**JSON)}, 422, "invalid_request"),
        ("POST", "/loaves", {}, 422, "invalid_request"),
        ("GET", "/loaves", {"headers": {}}, 401, "unauthenticated"),
    ],
)
def test_refusals_are_problems(
    method: str, path: str, options: dict[str, Any], status: int, code: str | None
) -> None:
    answer = call(bakery(), method, path, **options)
    problem = answer.json()
    assert (answer.status_code, problem["status"]) == (status, status)
    assert answer.headers["content-type"] == "application/problem+json"
    assert problem["code"] == (code or "malformed_json")
    assert problem["type"] == "urn:problem:" + problem["code"]
    assert problem["request_id"] == answer.headers["x-request-id"]


def test_a_405_and_options_say_what_is_allowed() -> None:
    allowed = "GET, HEAD, OPTIONS, POST"
    assert call(bakery(), "DELETE", "/loaves").headers["allow"] == allowed
    answer = call(bakery(), "OPTIONS", "/loaves", headers={})
    assert (answer.status_code, answer.headers["allow"]) == (204, allowed)


def test_head_is_get_without_its_body() -> None:
    got, head = call(bakery(), "GET", "/loaves"), call(bakery(), "HEAD", "/loaves")
    assert head.content == b""
    assert head.headers["content-length"] == got.headers["content-length"]
    assert call(bakery(), "HEAD", "/loaves/99").status_code == 404


@pytest.mark.parametrize(
    ("accept", "status"),
    [
        ("*/*", 200),
        ("application/*;q=0.1", 200),
        ("text/html, application/json;q=0.9", 200),
        ("APPLICATION/JSON", 200),
        ("", 200),
        ("application/json;q=0", 406),
        ("application/json;q=0, */*", 406),
        ("image/png", 406),
    ],
)
def test_accept_is_honoured(accept: str, status: int) -> None:
    answer = call(bakery(), "GET", "/loaves", headers=authorized(accept=accept))
    assert answer.status_code == status


@pytest.mark.parametrize("media_type", ["application/json", "Application/JSON; charset=utf-8"])
def test_content_type_is_read_as_http_has_it(media_type: str) -> None:
    body = b'{"name": "corn", "grams": 100}'
    headers = authorized(content_type=media_type)
    assert call(bakery(), "POST", "/loaves", content=body, headers=headers).status_code == 201


def test_a_body_too_large_is_refused_by_its_announced_length_unread() -> None:
    given = scope("POST", "/loaves", authorized(content_type="application/json") | LENGTH)
    sent = asyncio.run(play(bakery(max_body_bytes=100), given, []))
    assert sent[0]["status"] == 413
    assert (b"connection", b"close") in sent[0]["headers"]


LENGTH = {"content-length": "101"}


@pytest.mark.parametrize("chunks", [[101], [60, 60, 60], [100, 1]])
def test_a_body_too_large_is_refused_as_it_streams_in(chunks: list[int]) -> None:
    events = [request_event(b" " * size, more=True) for size in chunks]
    given = scope("POST", "/loaves", authorized(content_type="application/json"))
    sent = asyncio.run(play(bakery(max_body_bytes=100), given, events))
    assert sent[0]["status"] == 413


def test_a_body_of_just_the_limit_in_pieces_is_read() -> None:
    body = b'{"name": "corn", "grams": 100}'
    events = [request_event(body[:7], more=True), request_event(body[7:], more=True)]
    given = scope("POST", "/loaves", authorized(content_type="application/json"))
    app = bakery(max_body_bytes=len(body))
    sent = asyncio.run(play(app, given, [*events, request_event()]))
    assert sent[0]["status"] == 201


def test_a_client_that_leaves_while_sending_gets_nothing() -> None:
    given = scope("POST", "/loaves", authorized(content_type="application/json"))
    app = bakery()
    events = [request_event(b'{"name": "corn", "grams": 100}', more=True)]
    assert asyncio.run(play(app, given, events, then_gone=True)) == []
    assert len(app.state["loaves"]) == 1


@pytest.mark.parametrize("request_id", ["abcdefgh", "a-b_c-1234", "x" * 64])
def test_a_good_request_id_is_kept(request_id: str) -> None:
    answer = call(bakery(), "GET", "/cakes", headers=authorized(x_request_id=request_id))
    assert answer.headers["x-request-id"] == answer.json()["request_id"] == request_id


@pytest.mark.parametrize("request_id", ["short", "x" * 65, "has space", "quote'quote"])
def test_any_other_request_id_is_replaced(request_id: str) -> None:
    answer = call(bakery(), "GET", "/loaves", headers=authorized(x_request_id=request_id))
    assert re.fullmatch(r"req_[0-9A-HJKMNP-TV-Z]{26}", answer.headers["x-request-id"])


def test_request_ids_are_ulids_that_differ() -> None:
    made = {new_request_id() for _ in range(1000)}
    assert len(made) == 1000
    assert all(made_id[4] in "01234567" for made_id in made)


def test_no_answer_may_be_stored_or_sniffed() -> None:
    headers = call(bakery(), "GET", "/loaves").headers
    assert headers["cache-control"] == "no-store"
    assert headers["x-content-type-options"] == "nosniff"


def test_headers_sent_twice_are_joined() -> None:
    headers = Headers([(b"accept", b"a/b"), (b"host", b"h"), (b"accept", b"c/d")])
    assert headers["Accept"] == "a/b, c/d"
    assert dict(headers) == {"accept": "a/b, c/d", "host": "h"}


def test_a_second_authorization_cannot_slip_past_the_first() -> None:
    given = scope("GET", "/loaves", {})
    good = (b"authorization", f"Bearer {TOKEN}".encode())
    given["headers"] = [(b"authorization", b"Bearer x"), good]
    sent = asyncio.run(play(bakery(), given, [request_event()]))
    assert sent[0]["status"] == 401


def test_a_mount_point_is_taken_off_the_path() -> None:
    given = scope("GET", "/shop/loaves/1", root_path="/shop")
    assert asyncio.run(play(bakery(), given, [request_event()]))[0]["status"] == 200


def test_the_path_of_the_server_comes_first() -> None:
    app = served(minimal({}, servers=[{"url": "https://bakery.example/v2"}]), lambda: 1)
    assert call(app, "GET", "/v2/thing").json() == 1
    assert call(app, "GET", "/thing").status_code == 404
