"""The head of an answer has an end in time, whatever a peer does."""

import contextlib
import socket
import threading
import time
from collections.abc import Iterator, Sequence

import httpx
import pytest

from gateway import bounded_answers

HEAD, REST = b"HTTP/1.1 200 OK\r\n", b"content-length: 2\r\n\r\n"
HINTS = b"HTTP/1.1 103 Early Hints\r\nlink: x\r\n\r\n"


@contextlib.contextmanager
def answering(parts: Sequence[bytes], pause_s: float) -> Iterator[str]:
    """A server that sends these, with a pause after each, to each request."""
    ended = threading.Event()
    with socket.create_server(("127.0.0.1", 0)) as listening:

        def serve() -> None:
            with contextlib.suppress(OSError):
                while True:
                    connection, _ = listening.accept()
                    with connection, contextlib.suppress(OSError):
                        while connection.recv(65536):
                            for part in parts:
                                connection.sendall(part)
                                if ended.wait(pause_s):
                                    return

        thread = threading.Thread(target=serve)
        thread.start()
        yield f"http://127.0.0.1:{listening.getsockname()[1]}/"
        ended.set()
        listening.shutdown(socket.SHUT_RDWR)
    thread.join(20)


@pytest.mark.parametrize("begin", [b"", HEAD, HINTS, HINTS + HEAD])
def test_a_head_that_comes_byte_by_byte_has_an_end(begin: bytes) -> None:
    """However short each wait is; neither does it begin anew after what is only a hint."""
    parts = [begin, *[b"x"] * 3000]
    with answering(parts, 0.01) as url, bounded_answers.client(timeout=0.3) as client:
        began = time.monotonic()
        with pytest.raises(httpx.TransportError):
            client.get(url)
        assert time.monotonic() - began < 20, "and not after the 30 s that it sends for"


def test_heads_in_pieces_and_what_follows_are_read_as_ever() -> None:
    parts = [HINTS[:10], HINTS[10:] + HEAD[:4], HEAD[4:] + REST[:-1], REST[-1:] + b"o", b"k"]
    with answering(parts, 0.02) as url, bounded_answers.client(timeout=20) as client:
        for _ in range(2):
            answer = client.get(url)
            assert (answer.status_code, answer.text) == (200, "ok")
