"""A receiver on loopback that speaks HTTP/2 over TLS, and answers as tests tell it to."""

import asyncio
import ssl
import threading
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Self

import h2.config
import h2.connection
import h2.events
import h2.exceptions


@dataclass
class Asked:
    """A request, and by the number of which connection it came."""

    path: str
    headers: dict[str, str]
    connection: int
    body: bytes = b""


Answers = Callable[[Asked], int | None]
"""How many bytes are answered with a status of 200; None: it hangs."""


class Http2Receiver:
    """To be closed. `resets` counts the requests that the client gave up and said so."""

    def __init__(self, tls: ssl.SSLContext, answers: Answers) -> None:
        tls.set_alpn_protocols(["h2"])
        self.asked: list[Asked] = []
        self.resets = 0
        self.connections = 0
        self._tls, self._answers = tls, answers
        self._loop = asyncio.new_event_loop()
        self._started = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()
        assert self._started.wait(10)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._loop.call_soon_threadsafe(self._ending.set)
        self._thread.join()

    def _run(self) -> None:
        self._loop.run_until_complete(self._serve())
        self._loop.close()

    async def _serve(self) -> None:
        self._ending = asyncio.Event()
        server = await asyncio.start_server(self._connected, "127.0.0.1", 0, ssl=self._tls)
        self.port = int(server.sockets[0].getsockname()[1])
        self._started.set()
        await self._ending.wait()
        server.close()
        for task in asyncio.all_tasks() - {asyncio.current_task()}:
            task.cancel()

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        with suppress(OSError, asyncio.CancelledError):
            await _Connection(self, self.connections, writer).run(reader)
        writer.close()


class _Connection:
    def __init__(self, receiver: Http2Receiver, number: int, writer: asyncio.StreamWriter) -> None:
        self._receiver, self._number, self._writer = receiver, number, writer
        self._state = h2.connection.H2Connection(h2.config.H2Configuration(client_side=False))
        self._asked: dict[int, Asked] = {}
        # In the order in which they were answered, as one that is sent in full comes first.
        self._left: deque[list[int]] = deque()

    async def run(self, reader: asyncio.StreamReader) -> None:
        self._state.initiate_connection()
        while True:
            self._writer.write(self._state.data_to_send())
            await self._writer.drain()
            data = await reader.read(65_536)
            if not data:
                return
            for event in self._state.receive_data(data):
                self._take(event)
            self._send()

    def _take(self, event: Any) -> None:
        if isinstance(event, h2.events.RequestReceived):
            headers = {name.decode(): value.decode() for name, value in event.headers or ()}
            asked = Asked(headers.pop(":path"), headers, self._number)
            self._asked[event.stream_id] = asked
        elif isinstance(event, h2.events.DataReceived):
            self._asked[event.stream_id].body += event.data or b""
            self._state.acknowledge_received_data(
                event.flow_controlled_length or 0, event.stream_id
            )
        elif isinstance(event, h2.events.StreamEnded):
            asked = self._asked[event.stream_id]
            self._receiver.asked.append(asked)
            size = self._receiver._answers(asked)
            if size is not None:
                self._state.send_headers(event.stream_id, [(":status", "200")])
                self._left.append([event.stream_id, size])
        elif isinstance(event, h2.events.StreamReset):
            self._receiver.resets += 1
            self._left = deque(each for each in self._left if each[0] != event.stream_id)

    def _send(self) -> None:
        """As much of each answer as the client has room for."""
        for answer in list(self._left):
            stream_id, size = answer
            while size:
                room = self._state.local_flow_control_window(stream_id)
                part = min(size, room, self._state.max_outbound_frame_size)
                if part <= 0:
                    break
                self._state.send_data(stream_id, b"x" * part)
                size -= part
            answer[1] = size
            if not size:
                self._state.end_stream(stream_id)
                self._left.remove(answer)
