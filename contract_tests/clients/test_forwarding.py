"""What `menagerie webhooks listen` sends is what the service sends, and every outcome is told."""

import gzip
import hashlib
import hmac
import itertools
import json
import time
from http.server import BaseHTTPRequestHandler

import pytest
from standardwebhooks import Webhook

from clients import forwarding, webhook_signing
from clients.cli.listen import line
from clients.errors import ConfigurationError
from clients.forwarding import Forwarder
from contract_tests.clients.hooks import Respond, receiving, status

SECRET = webhook_signing.new_secret()
# Not as json.dumps would write it: what is signed and sent is what came.
EVENT = (
    '{"id":"evt_01JD7QK3V8Y2M4N6P8R0S2T4V6", "type":"instance.ready.v1",'
    '"time":"2026-11-30T07:41:10.250Z","org_id":"org_1","data":{"name":"ü\\u00fc"}}'
)


def forwarded(url: str, data: str = EVENT, secret: str = SECRET) -> str:
    with Forwarder(url, secret) as forwarder:
        return line(forwarder.forward(data))


def test_the_bytes_of_the_stream_are_sent_and_signed_in_both_ways() -> None:
    with receiving(status(202)) as receiver:
        told = forwarded(f"{receiver.url}?a=b")
        (got,) = receiver.received
    assert told.startswith("2026-11-30 07:41:10Z  instance.ready.v1           → 202 (")
    assert (got.path, got.body) == ("/hook?a=b", EVENT.encode())
    sent_at = got.headers["SVC-Timestamp"]
    assert abs(time.time() - int(sent_at)) < 60
    mac = hmac.new(SECRET.encode(), sent_at.encode() + b"." + got.body, hashlib.sha256)
    assert got.headers["SVC-Signature"] == f"v1={mac.hexdigest()}"
    assert got.headers["SVC-Event-Id"] == got.headers["webhook-id"] == json.loads(EVENT)["id"]
    assert got.headers["SVC-Event-Type"] == "instance.ready.v1"
    assert got.headers["Content-Type"] == "application/json"
    assert got.headers["User-Agent"] == "Menagerie-Webhooks/1"
    assert Webhook(SECRET).verify(got.body, got.headers) == json.loads(EVENT)


def hang_up(handler: BaseHTTPRequestHandler) -> None:
    handler.close_connection = True


def send(code: int, body: bytes, **headers: str) -> Respond:
    def respond(handler: BaseHTTPRequestHandler) -> None:
        handler.send_response(code)
        for name, value in {"Content-Length": str(len(body)), **headers}.items():
            handler.send_header(name.replace("_", "-"), value)
        handler.end_headers()
        handler.wfile.write(body)

    return respond


def without_end(handler: BaseHTTPRequestHandler) -> None:
    handler.send_response(200)
    handler.end_headers()
    while True:
        handler.wfile.write(b"x" * 10_000)


@pytest.mark.parametrize(
    ("respond", "told"),
    [
        (status(500), "→ 500 ("),
        (hang_up, "→ no valid response: Server disconnected without sending a response ("),
        (lambda handler: handler.wfile.write(b"hello\r\n\r\n"), "→ no valid response: "),
        # It is where a redirect leads that a webhook does not go.
        (send(302, b"", Location="http://127.0.0.1:1/"), "→ 302 ("),
        # As far as the service is concerned these are well, and it reads a bounded part.
        (send(200, gzip.compress(bytes(1 << 20)), Content_Encoding="gzip"), "→ 200 ("),
        (without_end, "→ 200 ("),
    ],
    ids=["refused", "hung up", "not HTTP", "redirected", "compressed", "endless"],
)
def test_each_outcome_is_told_and_the_next_event_is_sent(respond: Respond, told: str) -> None:
    with receiving(respond, status(204)) as receiver, Forwarder(receiver.url, SECRET) as forwarder:
        assert told in line(forwarder.forward(EVENT))
        assert "→ 204 (" in line(forwarder.forward(EVENT))
        assert len(receiver.received) == 2


def slow_parts(handler: BaseHTTPRequestHandler) -> None:
    handler.send_response(200)
    handler.end_headers()
    for _ in itertools.count():
        handler.wfile.write(b"x")
        time.sleep(0.05)


@pytest.mark.parametrize("respond", [slow_parts, lambda _: time.sleep(2)], ids=["slow", "silent"])
def test_a_response_that_is_too_slow_is_none(
    respond: Respond, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(forwarding, "RESPONSE_S", 0.3)
    with receiving(respond) as receiver:
        assert "→ no complete response within 10 s (" in forwarded(receiver.url)


def test_a_receiver_that_does_not_run_is_told() -> None:
    with receiving() as receiver:
        pass
    assert "→ cannot connect: Connection refused (" in forwarded(receiver.url)
    assert "→ " in forwarded(f"http://{'a' * 64}.example/")


def test_a_kind_begins_no_line_and_no_header() -> None:
    hostile = json.dumps({**json.loads(EVENT), "type": "a\r\nX: y"})
    with receiving() as receiver:
        told = forwarded(receiver.url, hostile)
        assert not receiver.received
    assert "\n" not in told
    assert "→ no valid response: Illegal header value" in told


@pytest.mark.parametrize("url", ["localhost:3000", "ftp://localhost/", "http://", "http://[::1"])
def test_what_is_no_url_is_refused(url: str) -> None:
    with pytest.raises(ConfigurationError, match="not an http or https address"):
        Forwarder(url, SECRET)


@pytest.mark.parametrize(
    "secret",
    ["", "whsec_", SECRET.removeprefix("whsec_"), SECRET[:-1], f"{SECRET}ü", "whsec_c2hvcnQ="],
    ids=["empty", "prefix", "no prefix", "cut", "more", "short"],
)
def test_what_is_no_secret_is_not_repeated(secret: str) -> None:
    with pytest.raises(ValueError, match="a secret is whsec_ and the Base64 text of") as refused:
        webhook_signing.key_of(secret)
    assert not secret or secret == "whsec_" or secret not in str(refused.value)


def test_no_two_secrets_are_the_same() -> None:
    assert len({webhook_signing.new_secret() for _ in range(100)}) == 100
    assert len(webhook_signing.key_of(SECRET)) == 32


def test_each_secret_has_a_signature_and_the_newest_is_first() -> None:
    newer = webhook_signing.new_secret()
    both = webhook_signing.headers("evt_1", "a.b.v1", b"{}", 1, [newer, SECRET])
    each = [webhook_signing.headers("evt_1", "a.b.v1", b"{}", 1, [one]) for one in (newer, SECRET)]
    for name, separator in (("SVC-Signature", ","), ("webhook-signature", " ")):
        assert both[name] == separator.join(one[name] for one in each)
