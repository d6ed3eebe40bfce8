"""A non-blocking stream socket on the loop: direct writes, one bounded queue, half-closing.

asyncio's own transports drop what a peer said before it hung up as soon as a write to it fails, so
an early answer (413) followed by a close would be lost; here reading goes on until the end.
"""

import asyncio
import select
import socket
import struct
from collections import deque
from collections.abc import Callable
from typing import Protocol

CHUNKS_PER_CALL = 64
RESET_ON_CLOSE = struct.pack("ii", 1, 0)


class Listener(Protocol):
    """What a stream tells its owner."""

    def received(self, stream: "Stream", data: memoryview) -> None: ...

    def ended(self, stream: "Stream") -> None: ...

    def failed(self, stream: "Stream") -> None: ...

    def blocked(self, stream: "Stream") -> None: ...

    def drained(self, stream: "Stream") -> None: ...

    def unwritable(self, stream: "Stream") -> None: ...


class Stream:
    """`buffer` is shared by all streams of a worker: what was received is used up in the call."""

    __slots__ = (
        "_broken",
        "_ended",
        "_ending",
        "_loop",
        "_owner",
        "_queue",
        "_reader",
        "_reading",
        "_socket",
        "_unwritable",
        "buffer",
        "closed",
        "receive_into",
    )

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        connected: socket.socket,
        owner: Listener,
        buffer: memoryview,
    ) -> None:
        self._loop = loop
        self._socket = connected
        self._owner = owner
        self.buffer = buffer
        self.receive_into = connected.recv_into
        self._queue: deque[bytes | memoryview] = deque()
        self._reader: Callable[[], None] = self._on_readable
        self._reading = False
        self._broken = False
        self._ended = False
        self._ending = False
        self._unwritable = False
        self.closed = False

    @property
    def is_blocked(self) -> bool:
        return bool(self._queue)

    def resume(self) -> None:
        if not self._reading and not self._ended and not self.closed:
            self._reading = True
            self._loop.add_reader(self._socket, self._reader)

    def pause(self) -> None:
        if self._reading:
            self._reading = False
            self._loop.remove_reader(self._socket)

    def read_by(self, reader: Callable[[], None]) -> None:
        """From now on the loop calls this, and not the owner, when there is something to read."""
        self._reader = reader
        if self._reading:
            self._loop.add_reader(self._socket, reader)

    def send(self, data: bytes) -> None:
        """As `write`, of one piece and in fewer steps."""
        if self._queue or self._unwritable or self.closed:
            self.write([data])
            return
        try:
            sent = self._socket.send(data)
        except (BlockingIOError, InterruptedError):
            sent = 0
        except OSError:
            self._write_failed()
            return
        if sent != len(data):
            self._wait_for_room([memoryview(data)[sent:]])

    def write(self, chunks: list[bytes]) -> None:
        """Sent at once as far as it goes; where it does not, the owner hears `blocked`."""
        if self.closed or self._unwritable:
            return
        if self._queue:
            self._queue.extend(chunks)
            return
        if len(chunks) > CHUNKS_PER_CALL:
            chunks = [b"".join(chunks)]
        try:
            sent = (
                self._socket.send(chunks[0]) if len(chunks) == 1 else self._socket.sendmsg(chunks)
            )
        except (BlockingIOError, InterruptedError):
            sent = 0
        except OSError:
            self._write_failed()
            return
        left = []
        for chunk in chunks:
            if sent >= len(chunk):
                sent -= len(chunk)
            else:
                left.append(memoryview(chunk)[sent:])
                sent = 0
        if left:
            self._wait_for_room(left)

    def _wait_for_room(self, left: list[memoryview]) -> None:
        self._queue.extend(left)
        self._loop.add_writer(self._socket, self._on_writable)
        self._owner.blocked(self)

    def end(self) -> None:
        """Nothing more will be written; what is queued still goes out first."""
        if not self._ending and not self.closed:
            self._ending = True
            if not self._queue:
                self._shut_down()

    def close(self, *, reset: bool = False) -> None:
        if self.closed:
            return
        self.closed = True
        self.pause()
        if self._queue:
            self._loop.remove_writer(self._socket)
            self._queue.clear()
        self._reader = self._on_readable  # what it had was more than this stream
        if reset:
            self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET_ON_CLOSE)
        self._socket.close()

    def _on_readable(self) -> None:
        if self.closed:
            return
        try:
            count = self.receive_into(self.buffer)
        except OSError as error:
            self.cannot_read(error)
            return
        self.notice_break()
        self.has_read(count)

    def cannot_read(self, error: OSError) -> None:
        if self.closed or isinstance(error, BlockingIOError | InterruptedError):
            return
        self.pause()
        self._ended = True
        self._owner.failed(self)

    def has_read(self, count: int) -> None:
        """So many bytes are in the buffer; none where the peer has ended."""
        if count:
            self._owner.received(self, self.buffer[:count])
            return
        self.pause()
        self._ended = True
        if self._broken:
            self._owner.failed(self)
        else:
            self._owner.ended(self)

    def notice_break(self) -> None:
        """Goes on reading what a peer said before it reset the connection.

        libuv watches a socket no more once it has reported an error. Asking for the error takes it
        off, and the socket can be watched anew, up to the end.
        """
        if self._reading and self._socket.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR):
            self._broken = True
            self.pause()
            self.resume()

    def has_hung_up(self, *, both_ways: bool = False) -> bool:
        """Whether the peer has ended, also where what it said is still to be read.

        `both_ways`: only where it takes nothing any more either, as the system knows it.
        """
        if self.closed:
            return False
        poll = select.poll()
        poll.register(self._socket, 0 if both_ways else select.POLLRDHUP)
        return bool(poll.poll(0))

    def _on_writable(self) -> None:
        if self.closed:
            return
        queue = self._queue
        try:
            while queue:
                sent = self._socket.send(queue[0])
                if sent < len(queue[0]):
                    queue[0] = memoryview(queue[0])[sent:]
                    return
                queue.popleft()
        except (BlockingIOError, InterruptedError):
            return
        except OSError:
            self._write_failed()
            return
        self._loop.remove_writer(self._socket)
        if self._ending:
            self._shut_down()
        self._owner.drained(self)

    def _write_failed(self) -> None:
        # The peer reads no more, but what it has said is still to be read.
        self._unwritable = True
        if self._queue:
            self._queue.clear()
            self._loop.remove_writer(self._socket)
        self._owner.unwritable(self)

    def _shut_down(self) -> None:
        try:
            self._socket.shutdown(socket.SHUT_WR)
        except OSError:
            self._unwritable = True
