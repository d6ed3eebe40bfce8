"""Events are read line by line from a server that may be hostile."""

import threading
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import httpx
import pytest

from clients import errors, following, transport
from clients.following import follow
from contract_tests.clients.test_hostile_servers import answering

HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n\r\n"


def following_of(http: httpx.Client, url: str) -> Iterator[str]:
    client: Any = SimpleNamespace(
        open=lambda *_: http.send(http.build_request("GET", url), stream=True)
    )
    operation: Any = None
    return follow(client, operation, {})


@pytest.mark.parametrize("event_id", ["\u00e9", "a\rX", "", "x" * 256, "a b"])
def test_an_id_that_no_header_can_hold_ends_it(event_id: str) -> None:
    """It is sent back, and would fail each time."""
    sent = f"id: {event_id}\ndata: first\n\n".encode()
    refused = pytest.raises(errors.MalformedAnswer, match="ID that is not 1 to 255 visible ASCII")
    with answering(HEAD, sent) as url, transport.open_http(url) as http, refused:
        next(following_of(http, url))


def test_a_line_that_does_not_end_is_not_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(following, "LINE_BYTES_MAX", 100_000)
    endless = [b"x" * 50_000] * 3
    with (
        answering(HEAD, b"id: 1\r\ndata: first\r\n\r\n", b"data: ", *endless) as url,
        transport.open_http(url) as http,
    ):
        found = following_of(http, url)
        assert next(found) == "first"
        with pytest.raises(errors.MalformedAnswer, match="more than 100000 bytes"):
            next(found)


def test_an_event_that_was_cut_off_was_not_received(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever took its id would go on behind it, and miss it."""
    monkeypatch.setattr(following, "AGAIN_AFTER_S", 0.0)
    asked: list[Any] = []
    whole, cut = b"id: 1\ndata: first\n\n", b"id: 2\ndata: sec"
    hangs_up = threading.Event()
    hangs_up.set()
    with answering(HEAD, whole, cut, hold=hangs_up) as url, transport.open_http(url) as http:

        def open_(_operation: Any, given: dict[str, Any]) -> httpx.Response:
            asked.append(given.get("last_event_id"))
            return http.send(http.build_request("GET", url), stream=True)

        client: Any = SimpleNamespace(open=open_)
        operation: Any = None
        found = follow(client, operation, {})
        assert [next(found), next(found)] == ["first", "first"]
    assert asked == [None, "1"]
