"""Owns the proof that credentials are asked for as the document says, and never told to anyone."""

import asyncio
import base64
from typing import Any

import pytest
import structlog

from contract_tests.specserver.calling import (
    TOKEN,
    authorized,
    bakery,
    call,
    minimal,
    served,
    verify,
)
from specserver import DocumentInvalid, Exchange, Forbidden, Request

SCHEMES = {
    "bearer": {"type": "http", "scheme": "bearer"},
    "basic": {"type": "http", "scheme": "basic"},
    "header": {"type": "apiKey", "in": "header", "name": "X-Key"},
    "query": {"type": "apiKey", "in": "query", "name": "key"},
    "cookie": {"type": "apiKey", "in": "cookie", "name": "session"},
}


def app(*requirements: dict[str, list[str]], **verifiers: Any) -> Any:
    async def later(token: str) -> str | None:
        await asyncio.sleep(0)
        return "later" if token == "good" else None

    def one(credential: str) -> str | None:
        return "one" if credential == "good" else None

    def two(name: str, password: str) -> str | None:
        return name if password == "päss:word" else None

    given = {"bearer": later, "basic": two, "header": one, "query": one, "cookie": one}
    document = minimal({"security": list(requirements)}, components={"securitySchemes": SCHEMES})
    return served(
        document,
        lambda exchange: [exchange.principal, exchange.scheme],
        security=given | verifiers,
    )


def basic(text: str) -> dict[str, str]:
    return {"authorization": "Basic " + base64.b64encode(text.encode()).decode()}


@pytest.mark.parametrize(
    ("scheme", "headers", "query", "principal"),
    [
        ("bearer", {"authorization": "bearer good"}, "", "later"),
        ("basic", basic("app:päss:word"), "", "app"),
        ("header", {"x-key": "good"}, "", "one"),
        ("query", {}, "?key=good", "one"),
        ("cookie", {"cookie": "a=b; session=good"}, "", "one"),
    ],
)
def test_each_scheme_finds_its_credential(
    scheme: str, headers: dict[str, str], query: str, principal: str
) -> None:
    served_app = app({scheme: []})
    assert call(served_app, "GET", "/thing" + query, headers=headers).json() == [principal, scheme]
    refused = call(served_app, "GET", "/thing", headers={})
    assert refused.status_code == 401
    assert refused.headers["www-authenticate"]


@pytest.mark.parametrize(
    "headers",
    [
        basic("app:wrong"),
        basic("no colon"),
        {"authorization": "Basic !!!"},
        {"authorization": "Basic"},
        {"authorization": "Bearer app:päss:word"},
    ],
)
def test_a_bad_basic_credential_is_refused(headers: dict[str, str]) -> None:
    raw = {name: value.encode() for name, value in headers.items()}
    answer = call(app({"basic": []}), "GET", "/thing", headers=raw)
    assert answer.status_code == 401
    assert answer.headers["www-authenticate"] == 'Basic realm="api"'


def test_alternatives_and_combinations() -> None:
    either = app({"header": []}, {"bearer": []})
    assert call(either, "GET", "/thing", headers={"x-key": "good"}).json() == ["one", "header"]
    bearer = {"authorization": "Bearer good", "x-key": "bad"}
    assert call(either, "GET", "/thing", headers=bearer).json() == ["later", "bearer"]
    both = app({"header": [], "cookie": []})
    assert call(both, "GET", "/thing", headers={"x-key": "good"}).status_code == 401
    complete = {"x-key": "good", "cookie": "session=good"}
    assert call(both, "GET", "/thing", headers=complete).status_code == 200


def test_security_may_be_optional() -> None:
    optional = app({"header": []}, {})
    assert call(optional, "GET", "/thing", headers={}).json() == [None, ""]


def test_a_verifier_may_look_at_the_request_and_say_why_not() -> None:
    def strict(credential: str, request: Request) -> None:
        raise Forbidden(f"{request.method} with {len(credential)} letters")

    answer = call(app({"header": []}, header=strict), "GET", "/thing", headers={"x-key": "good"})
    assert (answer.status_code, answer.json()["detail"]) == (403, "GET with 4 letters")


def test_security_comes_before_validation() -> None:
    assert call(bakery(), "POST", "/loaves?x=1", content=b"{", headers={}).status_code == 401


def test_an_app_that_cannot_check_does_not_start() -> None:
    with pytest.raises(DocumentInvalid, match="neither security nor boundary"):
        bakery(security=None)
    with pytest.raises(DocumentInvalid, match=r"key of loaves\.list has no verifier"):
        bakery(security={"other": verify})
    with pytest.raises(DocumentInvalid, match="which the document does not define"):
        served(minimal({"security": [{"ghost": []}]}), lambda: None, security={"ghost": verify})


def test_a_failure_tells_the_caller_nothing_and_the_log_no_credential() -> None:
    def burn(exchange: Exchange) -> None:
        token = exchange.request.headers["authorization"]
        assert token
        raise RuntimeError("the oven is on fire")

    document = minimal({"security": [{"key": []}]})
    document["components"] = {"securitySchemes": {"key": SCHEMES["bearer"]}}
    burning = served(document, burn, security={"key": verify})
    with structlog.testing.capture_logs() as logs:
        answer = call(burning, "GET", "/thing", headers=authorized(x_request_id="fire-0001"))
    assert answer.status_code == 500
    assert "oven" not in answer.text
    assert answer.json()["request_id"] == "fire-0001"
    (line,) = logs
    assert "the oven is on fire" in line["exception"]
    assert "exc_info" not in line
    assert TOKEN not in repr(line)


def test_log_lines_of_a_request_bear_its_id() -> None:
    def fail() -> None:
        structlog.get_logger().info("out of flour")
        raise RuntimeError("no flour")

    merge = structlog.contextvars.merge_contextvars
    with structlog.testing.capture_logs(processors=[merge]) as logs:
        call(served(minimal({}), fail), "GET", "/thing", headers={"x-request-id": "flour-0001"})
    assert [line["event"] for line in logs] == ["out of flour", "request failed"]
    assert {line["request_id"] for line in logs} == {"flour-0001"}
