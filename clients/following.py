"""A stream of server-sent events, which goes on where it was when the connection ends."""

import contextlib
import re
import time
from collections.abc import Iterator, Mapping
from typing import Any, Final

import httpx

from clients.client import Client
from clients.document import Operation
from clients.errors import ConnectionFailed, MalformedAnswer, Problem

AGAIN_AFTER_S: Final = 2.0
BUSY: Final = frozenset({429, 502, 503, 504})
"""Answers of a server, or of what stands before it, that will serve again."""
LINE_BYTES_MAX: Final = 1 << 20
"""Many times what an event takes."""
EVENT_ID: Final = "[!-~]{1,255}"


def follow(client: Client, operation: Operation, arguments: Mapping[str, Any]) -> Iterator[str]:
    """Yield the data of each event, until the server refuses: `errors.Problem` says why."""
    given = dict(arguments)
    response: httpx.Response | None = client.open(operation, given)
    while True:
        with contextlib.suppress(httpx.TransportError, ConnectionFailed):
            if response is None:
                response = _again(client, operation, given)
            if response is not None:
                with contextlib.closing(response):
                    for event_id, data in _blocks(response):
                        given["last_event_id"] = event_id or given.get("last_event_id")
                        if data:
                            yield data
        response = None
        time.sleep(AGAIN_AFTER_S)


def _again(client: Client, operation: Operation, given: Mapping[str, Any]) -> httpx.Response | None:
    """None where the server cannot answer now, as while it restarts."""
    try:
        return client.open(operation, given)
    except Problem as problem:
        if problem.status not in BUSY:
            raise
        return None


def _blocks(response: httpx.Response) -> Iterator[tuple[str, str]]:
    """The id and the data of each block that came whole; empty where it has none.

    One that was cut off was not received: whoever took its id would go on behind it.
    """
    event_id = data = ""
    for line in _lines(response):
        name, _, value = line.partition(": ")
        if not line:
            yield event_id, data
            event_id = data = ""
        elif name == "id":
            event_id = _checked(value, response)
        elif name == "data":
            data = value


def _checked(event_id: str, response: httpx.Response) -> str:
    """It is sent back in a header."""
    if re.fullmatch(EVENT_ID, event_id) is None:
        raise MalformedAnswer(
            f"{response.url.host} sent an event ID that is not 1 to 255 visible ASCII characters"
        )
    return event_id


def _lines(response: httpx.Response) -> Iterator[str]:
    """Whole lines; raises MalformedAnswer rather than keep one that does not end."""
    rest = b""
    for part in response.iter_bytes():
        *lines, rest = (rest + part).split(b"\n")
        if len(rest) > LINE_BYTES_MAX:
            raise MalformedAnswer(
                f"{response.url.host} sends an event of more than {LINE_BYTES_MAX} bytes"
            )
        for line in lines:
            yield line.removesuffix(b"\r").decode(errors="replace")
