"""An app below which HTTP is tested, served in a thread or, for its memory's sake, alone.

`python echo_server.py LOOP` prints its port and serves until it is killed.
"""

import asyncio
import contextlib
import socket
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import uvicorn

if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).parents[2]))

from specserver.http_protocol import HttpProtocol

HASTE_S = 0.3


class Patient(HttpProtocol):
    """For requests that arrive: a stall of the test, or of the server, makes none of them late."""

    arrive_within_s = 600.0


class Hasty(HttpProtocol):
    """For what never becomes a request."""

    arrive_within_s = HASTE_S


class HastyLater(Patient):
    """For what never becomes a request behind one that does: hasty once a head was read."""

    def on_headers_complete(self) -> None:
        super().on_headers_complete()
        self.arrive_within_s = HASTE_S
        if self._limit is not None:
            self._stop_waiting()
            self._wait()


async def echo(scope: Any, receive: Any, send: Any) -> None:
    """Answers the body, or the trailers it should not see, late where the path says so."""
    if scope["path"] == "/early":
        await _answer(send, 413, b"early")
        return
    body = b""
    while (event := await receive()).get("more_body"):
        body += event["body"]
    if event["type"] == "http.disconnect":
        return
    body += event["body"]
    if scope["path"] == "/slow":
        await asyncio.sleep(0.05)
    if scope["path"] == "/fields":
        body = b",".join(name for name, _ in scope["headers"])
    await _answer(send, 200, body)


async def _answer(send: Any, status: int, body: bytes) -> None:
    length = (b"content-length", b"%d" % len(body))
    await send({"type": "http.response.start", "status": status, "headers": [length]})
    await send({"type": "http.response.body", "body": body})


def _server(loop: Any, protocol: type[HttpProtocol], app: Any = echo) -> uvicorn.Server:
    config = uvicorn.Config(
        app,
        http=protocol,
        loop=loop,
        ws="none",
        log_config=None,
        lifespan="off",
        timeout_keep_alive=600,
        timeout_graceful_shutdown=5,
    )
    return uvicorn.Server(config)


@contextlib.contextmanager
def serving(loop: str, protocol: type[HttpProtocol], app: Any = echo) -> Iterator[tuple[str, int]]:
    """In a thread; its address, at which it listens already."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        server = _server(loop, protocol, app)
        thread = threading.Thread(target=server.run, args=([listener],))
        thread.start()
        # Before it has started, it would not see that it is to end.
        while not server.started:
            assert thread.is_alive()
            time.sleep(0.01)
        try:
            yield listener.getsockname()[:2]
        finally:
            server.should_exit = True
            thread.join(60)
    assert not thread.is_alive()


if __name__ == "__main__":
    with socket.create_server(("127.0.0.1", 0)) as alone:
        print(alone.getsockname()[1], flush=True)  # noqa: T201 - how its port is told
        _server(sys.argv[1], Patient).run([alone])
