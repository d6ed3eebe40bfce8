"""An answer whose length is known is written at once; others as they come."""

import asyncio
import logging
from typing import Any

import pytest
from uvicorn.protocols.http.flow_control import FlowControl
from uvicorn.protocols.http.httptools_impl import RequestResponseCycle

from specserver.whole_answers import sends_whole


class Recorder:
    """A transport that keeps what is written, each write by itself."""

    def __init__(self) -> None:
        self.written: list[bytes] = []
        self.closed_after: int | None = None

    def write(self, data: bytes) -> None:
        self.written.append(data)

    def close(self) -> None:
        self.closed_after = len(self.written)


def _writes(*messages: Any, method: str = "GET", keep_alive: bool = True) -> Recorder:
    transport: Any = Recorder()

    async def speak() -> None:
        cycle = RequestResponseCycle(
            scope={"method": method},  # type: ignore[typeddict-item]
            transport=transport,
            flow=FlowControl(transport),
            logger=logging.getLogger(),
            access_logger=logging.getLogger(),
            access_log=False,
            default_headers=[],
            message_event=asyncio.Event(),
            expect_100_continue=False,
            keep_alive=keep_alive,
            on_response=lambda: None,
        )
        send = sends_whole(cycle)
        for message in messages:
            await send(message)

    asyncio.run(speak())
    found: Recorder = transport
    return found


def _start(*headers: tuple[bytes, bytes], status: int = 200) -> Any:
    return {"type": "http.response.start", "status": status, "headers": headers}


def _body(data: bytes, *, more: bool = False) -> Any:
    return {"type": "http.response.body", "body": data, "more_body": more}


_TWO = (b"content-length", b"2")


@pytest.mark.parametrize("keep_alive", [True, False])
def test_head_and_body_are_one_write(keep_alive: bool) -> None:
    transport = _writes(_start(_TWO), _body(b"hi"), keep_alive=keep_alive)
    (whole,) = transport.written
    assert whole.startswith(b"HTTP/1.1 200")
    assert whole.endswith(b"\r\n\r\nhi")
    assert transport.closed_after == (None if keep_alive else 1)


def test_an_empty_body_is_sent_with_its_head() -> None:
    (whole,) = _writes(_start((b"content-length", b"0")), _body(b"")).written
    assert whole.endswith(b"\r\n\r\n")


def test_a_stream_begins_before_its_first_part_is_there() -> None:
    assert len(_writes(_start()).written) == 1


def test_parts_of_a_known_length_go_as_they_come() -> None:
    sent = _writes(_start(_TWO), _body(b"h", more=True), _body(b"i")).written
    assert [each[-1:] for each in sent] == [b"h", b"i"]


def test_an_answer_to_head_is_its_head() -> None:
    (head,) = _writes(_start(_TWO), _body(b""), method="HEAD").written
    assert head.endswith(b"content-length: 2\r\n\r\n")


def test_another_answer_takes_the_place_of_one_that_was_not_sent() -> None:
    (whole,) = _writes(_start(_TWO), _start(_TWO, status=500), _body(b"no")).written
    assert whole.startswith(b"HTTP/1.1 500")
    assert whole.endswith(b"no")
