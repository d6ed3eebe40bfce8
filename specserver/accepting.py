"""Accepts connections for uvicorn, many in one turn of the event loop.

uvloop accepts one in each turn, and a turn serves every connection that has sent something. Whoever
keeps some hundred connections busy and opens more would keep everybody else from being accepted.
"""

import asyncio
import socket
from collections.abc import Callable
from typing import Any, Final

import structlog
import uvloop

ACCEPTS_PER_TURN: Final = 100
"""Few enough that processes which share a socket all get some of those who come at once."""
NO_DESCRIPTORS_PAUSE_S: Final = 0.2

log = structlog.get_logger("specserver")

Factory = Callable[[], asyncio.Protocol]


class AcceptingLoop(uvloop.Loop):
    """uvloop's, but for servers without TLS of its own."""

    async def create_server(  # type: ignore[override]  # the rest is passed on
        self,
        protocol_factory: Factory,
        host: str | None = None,
        port: Any = None,
        *,
        sock: socket.socket | None = None,
        ssl: Any = None,
        backlog: int = 100,
        **more: Any,
    ) -> Any:
        if ssl is not None or more:
            where: dict[str, Any] = {"sock": sock, "ssl": ssl, "backlog": backlog}
            return await super().create_server(protocol_factory, host, port, **where, **more)
        sockets = [sock] if sock is not None else bind(host, port)
        return Accepting(self, sockets, protocol_factory, backlog)


def bind(host: str | None, port: int | None, *, shared: bool = False) -> list[socket.socket]:
    """Sockets that listen, one for each address; OSError where one is taken.

    Those that are `shared` say SO_REUSEPORT, as whatever else of this user holds the port.
    """
    flags = socket.AI_PASSIVE
    found = socket.getaddrinfo(host or None, port, type=socket.SOCK_STREAM, flags=flags)
    places = dict.fromkeys((family, address) for family, _, _, _, address in found)
    return [
        socket.create_server(address, family=family, reuse_port=shared)
        for family, address in places
    ]


class Accepting:
    """What uvicorn asks of a server, as asyncio.AbstractServer has it."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        sockets: list[socket.socket],
        factory: Factory,
        backlog: int,
    ) -> None:
        self._loop = loop
        self._factory = factory
        self._begun: set[asyncio.Task[Any]] = set()
        self.sockets = sockets
        for each in sockets:
            each.setblocking(False)
            each.listen(backlog)
            loop.add_reader(each, self._accept, each)

    def close(self) -> None:
        sockets, self.sockets = self.sockets, []
        for each in sockets:
            self._loop.remove_reader(each)
            each.close()

    async def wait_closed(self) -> None:
        """Who was accepted is served on."""

    def is_serving(self) -> bool:
        return bool(self.sockets)

    def _accept(self, listener: socket.socket) -> None:
        for _ in range(ACCEPTS_PER_TURN):
            try:
                accepted, _ = listener.accept()
            except (BlockingIOError, InterruptedError):
                return
            except ConnectionAbortedError:
                continue
            except OSError as error:
                # Out of descriptors: the queue is left alone until some are given back.
                log.warning("specserver.accept_failed", reason=str(error))
                self._loop.remove_reader(listener)
                self._loop.call_later(NO_DESCRIPTORS_PAUSE_S, self._accept_again, listener)
                return
            self._begin(accepted)

    def _begin(self, accepted: socket.socket) -> None:
        accepted.setblocking(False)
        if accepted.family != socket.AF_UNIX:
            accepted.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        serving = self._loop.connect_accepted_socket(self._factory, accepted)
        task = self._loop.create_task(serving)
        self._begun.add(task)
        task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[Any]) -> None:
        self._begun.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            log.warning("specserver.connection_failed", reason=str(error))

    def _accept_again(self, listener: socket.socket) -> None:
        if listener in self.sockets:
            self._loop.add_reader(listener, self._accept, listener)
