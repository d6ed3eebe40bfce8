"""Owns the proof that the description and its reference page are served, complete and offline."""

import asyncio
import gzip
import io
import re
from typing import Any

import httpx
import openapi_spec_validator
import pytest

from contract_tests.specserver.calling import (
    bakery,
    call,
    minimal,
    play,
    served,
)
from specserver import Reply, Request, TooManyRequests, reference
from specserver.public import public


def test_the_description_is_public_and_keeps_only_allowed_extensions() -> None:
    answer = call(bakery(public_extensions={"x-authorize"}), "GET", "/openapi.json", headers={})
    document = answer.json()
    assert answer.headers["content-type"] == "application/json"
    assert "x-secret-plan" not in document["info"]
    assert document["paths"]["/loaves"]["get"]["x-authorize"] == {"permission": "loaves:read"}
    assert "x-authorize" not in call(bakery(), "GET", "/openapi.json").text
    # A property is not an extension, whatever its name.
    assert "x-ray" in document["components"]["schemas"]["Problem"]["properties"]
    openapi_spec_validator.validate(document)


def test_data_in_examples_is_left_alone() -> None:
    example = {"x-kept": 1}
    document = minimal({"x-gone": 1, "parameters": []})
    document["components"] = {"examples": {"x-name": {"value": example}}, "schemas": {"x-y": {}}}
    kept = public(document, ())
    assert kept["components"] == document["components"]
    assert "x-gone" not in kept["paths"]["/thing"]["get"]


def test_the_description_may_be_cached_by_its_tag() -> None:
    app = bakery()
    tag = call(app, "GET", "/openapi.json").headers["etag"]
    again = call(app, "GET", "/openapi.json", headers={"if-none-match": tag})
    assert (again.status_code, again.content) == (304, b"")


@pytest.mark.parametrize("path", ["/openapi.json", "/docs"])
def test_pages_answer_head_and_refuse_the_rest(path: str) -> None:
    app = bakery()
    head = call(app, "HEAD", path)
    assert (head.status_code, head.content) == (200, b"")
    assert head.headers["content-length"] == call(app, "GET", path).headers["content-length"]
    refused = call(app, "POST", path)
    assert (refused.status_code, refused.headers["allow"]) == (405, "GET, HEAD, OPTIONS")
    assert call(app, "OPTIONS", path).status_code == 204


def test_the_reference_page_needs_no_network_and_no_inline_script() -> None:
    app = bakery()
    page = call(app, "GET", "/docs")
    policy = page.headers["content-security-policy"]
    assert "default-src 'none'" in policy
    assert "script-src 'self';" in policy
    assert not re.findall(r"""(?:src|href)=["'](?:https?:)?//""", page.text)
    assert not re.findall(r"<script(?![^>]* src=)", page.text)
    links = re.findall(r'(?:src|href|data-url)="([^"]+)"', page.text)
    assert len(links) == 6
    for link in links:
        assert call(app, "GET", str(httpx.URL("http://bakery/docs").join(link))).status_code == 200


def test_what_the_reference_loads_is_kept_by_its_hash_and_sent_small() -> None:
    app = bakery()
    (link,) = re.findall(r'src="(docs/scalar[^"]+)"', call(app, "GET", "/docs").text)
    kept = call(app, "GET", f"/{link}", headers={"accept-encoding": "gzip"})
    assert kept.headers["cache-control"] == "public, max-age=31536000, immutable"
    assert kept.headers["content-encoding"] == "gzip"
    assert kept.headers["vary"] == "Accept-Encoding"
    assert int(kept.headers["content-length"]) < 1_500_000
    for accepted in ("identity", "gzip;q=0, br", ""):
        plain = call(app, "GET", "/docs/scalar.js", headers={"accept-encoding": accepted})
        assert "content-encoding" not in plain.headers
        assert plain.headers["cache-control"] == "no-cache"
        assert plain.content == kept.content
    other = call(app, "GET", "/docs/scalar.js?v=0", headers={"accept-encoding": "*"})
    assert other.headers["cache-control"] == "no-cache"
    assert call(app, "GET", "/docs/scalar.LICENSE.txt").text.count("MIT License") > 10


def test_an_app_may_have_no_pages() -> None:
    app = bakery(serve_docs=False)
    assert call(app, "GET", "/docs").status_code == 404
    assert call(app, "GET", "/openapi.json").status_code == 404


def test_a_document_may_describe_its_own_description() -> None:
    app = served(minimal({}, "/openapi.json"), lambda: {"mine": True})
    assert call(app, "GET", "/openapi.json").json() == {"mine": True}


def test_other_apps_live_beside_the_document() -> None:
    async def other(scope_: Any, _receive: Any, send: Any) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": scope_["path"].encode()})

    app = served(
        minimal({}), lambda: Reply.ok({}), extra_routes={"/exact": other, "/below/": other}
    )
    for path in ("/exact", "/below/", "/below/a/b"):
        answer = call(app, "GET", path)
        assert answer.text == path
        assert answer.headers["x-request-id"]
    assert call(app, "GET", "/exact/more").status_code == 404
    assert call(app, "GET", "/thing").json() == {}


def test_hooks_run_around_the_life_of_the_app() -> None:
    ran: list[str] = []

    async def later() -> None:
        await asyncio.sleep(0)
        ran.append("async")

    app = served(minimal({}), lambda: None, on_startup=[lambda: ran.append("sync"), later])
    app.on_shutdown.append(lambda: ran.append("end"))
    events = [{"type": "lifespan.startup"}, {"type": "lifespan.shutdown"}]
    sent = asyncio.run(play(app, {"type": "lifespan", "asgi": {}}, events))
    assert [event["type"] for event in sent] == [
        "lifespan.startup.complete",
        "lifespan.shutdown.complete",
    ]
    assert ran == ["sync", "async", "end"]


def test_a_websocket_is_turned_away() -> None:
    given = {"type": "websocket", "path": "/thing", "headers": []}
    sent = asyncio.run(play(bakery(), given, [{"type": "websocket.connect"}]))
    assert [event["type"] for event in sent] == ["websocket.close"]


def test_what_is_kept_packed_is_unpacked_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """It takes 16 ms, and nobody is asked for credentials here."""
    unpacked: list[bytes] = []

    def unpack(content: bytes) -> bytes:
        unpacked.append(content)
        return gzip.GzipFile(fileobj=io.BytesIO(content)).read()

    monkeypatch.setattr("specserver.reference.gzip.decompress", unpack)
    reference._asset.cache_clear()
    app = bakery()
    for method in ("HEAD", "GET", "HEAD", "GET"):
        for path in ("/docs/scalar.js", "/docs/scalar.LICENSE.txt"):
            answer = call(app, method, path, headers={"accept-encoding": "identity"})
            assert answer.status_code == 200
            assert "content-encoding" not in answer.headers
    assert len(unpacked) == len(set(unpacked))
    reference._asset.cache_clear()


def test_requests_to_no_operation_are_charged_to_whoever_sends_them() -> None:
    asked: list[tuple[str, str]] = []

    class Boundary:
        full = False

        def __call__(self, exchange: Any) -> Any:
            return exchange.invoke()

        def charge_unrouted(self, request: Request) -> None:
            asked.append((request.method, request.path))
            if self.full:
                raise TooManyRequests(headers={"Retry-After": "7"})

    boundary = Boundary()
    app = served(minimal({}), lambda: Reply.ok({}), boundary=boundary)
    unrouted = [("GET", "/nowhere"), ("HEAD", "/docs"), ("GET", "/openapi.json"), ("PUT", "/thing")]
    unrouted += [("OPTIONS", "/thing"), ("POST", "/docs")]
    statuses = [call(app, *one).status_code for one in unrouted]
    assert statuses == [404, 200, 200, 405, 204, 405]
    boundary.full = True
    refused = [call(app, *one) for one in unrouted]
    assert {(one.status_code, one.headers["retry-after"]) for one in refused} == {(429, "7")}
    assert asked == [*unrouted, *unrouted]
    assert call(app, "GET", "/thing").status_code == 200
