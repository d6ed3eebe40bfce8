"""A server of a test that is one object: it serves each connection on a thread of its own."""

import contextlib
import socket
import threading
from collections.abc import Iterator
from typing import Protocol, TypeVar


class Serves(Protocol):
    port: int

    def serve(self, connected: socket.socket) -> None: ...


Source = TypeVar("Source", bound=Serves)


@contextlib.contextmanager
def listening(source: Source) -> Iterator[Source]:
    """Sets the source's port, on loopback."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        source.port = server.getsockname()[1]
        ending = threading.Event()

        def accept() -> None:
            while not ending.is_set():
                with contextlib.suppress(OSError):
                    connected, _ = server.accept()
                    threading.Thread(target=source.serve, args=(connected,), daemon=True).start()

        thread = threading.Thread(target=accept, daemon=True)
        thread.start()
        yield source
        ending.set()
        server.shutdown(socket.SHUT_RDWR)
        thread.join(5)
