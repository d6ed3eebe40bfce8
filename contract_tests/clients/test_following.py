"""Events are read line by line from a server that may be hostile."""

from types import SimpleNamespace
from typing import Any

import pytest

from clients import errors, following, transport
from clients.following import follow
from contract_tests.clients.test_hostile_servers import answering

HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n\r\n"


def test_a_line_that_does_not_end_is_not_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(following, "LINE_BYTES_MAX", 100_000)
    endless = [b"x" * 50_000] * 3
    with (
        answering(HEAD, b"id: 1\r\ndata: first\n\n", b"data: ", *endless) as url,
        transport.open_http(url) as http,
    ):
        client: Any = SimpleNamespace(
            open=lambda *_: http.send(http.build_request("GET", url), stream=True)
        )
        operation: Any = None
        found = follow(client, operation, {})
        assert next(found) == "first"
        with pytest.raises(errors.MalformedAnswer, match="more than 100000 bytes"):
            next(found)
