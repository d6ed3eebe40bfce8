"""Holds that a client which resets its connection, whenever it does, leaves no error behind."""

import errno
import logging
import socket
import struct
import threading
import time
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from contract_tests.specserver.echo_server import Hasty, serving
from contract_tests.specserver.wire import connect, exchanged
from specserver.http_protocol import HttpProtocol

RESET_ON_CLOSE = struct.pack("ii", 1, 0)
SLOW = b"GET /slow HTTP/1.1\r\nhost: x\r\n\r\n"
LAST = b"GET / HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n"
POST = b"POST / HTTP/1.1\r\nhost: x\r\n"
# How long after its last words a client resets: before they are read, and while they are answered.
AFTER_S = (0.0, 0.002, 0.02)

SAID = {
    "one request": SLOW,
    "several in a row": SLOW * 3,
    "a request and what is none": SLOW + b"FOO / HTTP/1.1\r\n\r\n",
    "what is no request": b"FOO / HTTP/1.1\r\n\r\n",
    "part of a body": POST + b"content-length: 9\r\n\r\nx",
    "a request and part of one": SLOW + POST + b"content-length: 9\r\n\r\nx",
    "a body to be asked for": POST + b"content-length: 9\r\nexpect: 100-continue\r\n\r\n",
    "an early answer": b"POST /early HTTP/1.1\r\nhost: x\r\ncontent-length: 9\r\n\r\nx" + SLOW,
    "a long answer": POST + b"content-length: 1000000\r\n\r\n" + b"x" * 1_000_000 + SLOW,
}


@pytest.fixture(scope="module", params=["uvloop", "asyncio"])
def address(request: pytest.FixtureRequest) -> Iterator[tuple[str, int]]:
    with serving(request.param, Hasty) as found:
        yield found


def say_and_reset(address: tuple[str, int], words: bytes, after_s: float) -> None:
    with connect(address) as client:
        client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET_ON_CLOSE)
        client.sendall(words)
        time.sleep(after_s)


@pytest.mark.parametrize("words", SAID.values(), ids=SAID)
def test_a_reset_leaves_no_error_in_the_log(
    address: tuple[str, int], words: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING)
    crowd = [
        threading.Thread(target=say_and_reset, args=(address, words, after_s))
        for after_s in AFTER_S * 5
    ]
    for each in crowd:
        each.start()
    for each in crowd:
        each.join()
    # What was begun for them has ended by the time that this, which takes as long, is answered.
    (answer,) = exchanged(address, SLOW * 7 + LAST)[-1:]
    assert answer.status == 200
    assert [record.getMessage() for record in caplog.records] == []


class Gone:
    """A transport whose peer has reset the connection, of which the loop has not heard yet."""

    def __init__(self) -> None:
        self.closed = False

    def can_write_eof(self) -> bool:
        return True

    def write(self, data: bytes) -> None:
        pass

    def write_eof(self) -> None:
        raise OSError(errno.ENOTCONN, "Transport endpoint is not connected")

    def close(self) -> None:
        self.closed = True


def test_who_is_gone_when_it_is_refused_ends_nothing_else() -> None:
    later: list[Any] = []
    loop = SimpleNamespace(call_later=lambda _s, act: later.append(act))
    protocol: Any = SimpleNamespace(
        transport=Gone(),
        loop=loop,
        flow=SimpleNamespace(resume_reading=lambda: None),
        _refusal=b"HTTP/1.1 400 Bad Request\r\n\r\n",
        _unset_keepalive_if_required=lambda: None,
    )
    HttpProtocol._hang_up(protocol)
    later[0]()
    assert protocol.transport.closed
