"""Holds that a request which does not arrive in time is hung up on, and no other."""

import asyncio
import socket
import threading
from collections.abc import Iterator
from typing import Any

import pytest
import uvicorn

import cell.main
from contract_tests.duckdb.process import until
from instance_services.duckdb import __main__ as service
from instance_services.prompt_http import PromptHttp


class Hasty(PromptHttp):
    arrive_within_s = 0.3


async def echo(scope: Any, receive: Any, send: Any) -> None:
    """Answers the body, later than a request may take to arrive where the path says so."""
    body = b""
    while (event := await receive()).get("more_body"):
        body += event["body"]
    if event["type"] == "http.disconnect":
        return
    if scope["path"] == "/slow":
        await asyncio.sleep(1)
    await send({"type": "http.response.start", "status": 200, "headers": []})
    await send({"type": "http.response.body", "body": body + event["body"]})


@pytest.fixture(scope="module")
def port() -> Iterator[int]:
    config = uvicorn.Config(echo, port=0, http=Hasty, log_config=None, lifespan="off")
    server = uvicorn.Server(config)
    thread = threading.Thread(target=server.run)
    thread.start()
    until(lambda: server.started, "the server to start")
    yield server.servers[0].sockets[0].getsockname()[1]
    server.should_exit = True
    thread.join(30)


def said(port: int, sent: bytes) -> bytes:
    """All that is answered until the server hangs up."""
    with socket.create_connection(("127.0.0.1", port), timeout=20) as client:
        client.sendall(sent)
        answer = b""
        while chunk := client.recv(65_536):
            answer += chunk
    return answer


@pytest.mark.parametrize(
    "sent",
    [
        b"POST / HTTP/1.1\r\nhost: x\r\ncontent-length: 10\r\n\r\nfour",
        b"POST / HTTP/1.1\r\nhost: x\r\ntransfer-encoding: chunked\r\n\r\n4\r\nfour\r\n",
        b"GET / HTTP/1.1\r\nhost:",
        b"",
    ],
)
def test_what_does_not_arrive_is_hung_up_on(port: int, sent: bytes) -> None:
    assert said(port, sent)[:12] == b"HTTP/1.1 408"


def test_half_a_second_request_is_hung_up_on_after_the_answer_to_the_first(port: int) -> None:
    answer = said(port, b"GET /slow HTTP/1.1\r\nhost: x\r\n\r\nPOST / HTTP/1.1\r\n")
    assert answer[:12] == b"HTTP/1.1 200"
    assert answer.count(b"HTTP/1.1 408") == 1


def test_an_answer_may_take_its_time(port: int) -> None:
    sent = b"POST /slow HTTP/1.1\r\nhost: x\r\nconnection: close\r\ncontent-length: 4\r\n\r\n"
    answer = said(port, sent + b"four")
    assert answer[:12] == b"HTTP/1.1 200"
    assert b"four" in answer


def test_it_is_what_strangers_speak_to(monkeypatch: pytest.MonkeyPatch) -> None:
    class Seen(Exception):  # noqa: N818 - a way out of a program
        pass

    def config(*_: Any, **given: Any) -> None:
        raise Seen(given["http"])

    monkeypatch.setattr(uvicorn, "Config", config)
    with pytest.raises(Seen, match="PromptHttp"):
        service.main(["--socket", "s", "--data", "/nowhere/d", "--users", "/nowhere/u"])
    assert vars(cell.main)["PromptHttp"] is PromptHttp
