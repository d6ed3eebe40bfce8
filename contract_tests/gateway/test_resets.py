"""A connection that is reset right after its last words is read to its end, and let go."""

import asyncio
import socket
import struct

import pytest
import uvloop

from gateway.stream import Stream

BUFFER_BYTES = 1_000
RESET_ON_CLOSE = struct.pack("ii", 1, 0)


class Owner:
    """Notes what a stream tells, and takes a rest after every piece where asked to."""

    def __init__(self, *, rests: bool) -> None:
        self.heard = bytearray()
        self.over: list[str] = []
        self.told = asyncio.Event()
        self._rests = rests

    def received(self, stream: Stream, data: memoryview) -> None:
        self.heard += data
        if self._rests:
            stream.pause()
            asyncio.get_running_loop().call_later(0.01, stream.resume)

    def ended(self, _: Stream) -> None:
        self.over.append("ended")
        self.told.set()

    def failed(self, _: Stream) -> None:
        self.over.append("failed")
        self.told.set()

    def blocked(self, _: Stream) -> None: ...

    def drained(self, _: Stream) -> None: ...

    def unwritable(self, _: Stream) -> None: ...


def pair(kind: str) -> tuple[socket.socket, socket.socket]:
    if kind == "unix":
        return socket.socketpair()
    with socket.create_server(("127.0.0.1", 0)) as listener:
        peer = socket.create_connection(listener.getsockname())
        return listener.accept()[0], peer


def reset(kind: str, own: socket.socket, peer: socket.socket) -> None:
    if kind == "unix":
        own.send(b"left unread, which makes closing a reset")
    else:
        peer.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET_ON_CLOSE)
    peer.close()


@pytest.mark.parametrize("rests", [False, True])
@pytest.mark.parametrize("words", [b"", b"last words", b"long last words" * 1_000])
@pytest.mark.parametrize("kind", ["unix", "tcp"])
def test_the_last_words_and_the_reset_are_both_heard(kind: str, words: bytes, rests: bool) -> None:
    """They come as one event, after which libuv would watch the socket no more."""

    async def listen() -> Owner:
        own, peer = pair(kind)
        own.setblocking(False)
        owner = Owner(rests=rests)
        buffer = memoryview(bytearray(BUFFER_BYTES))
        stream = Stream(asyncio.get_running_loop(), own, owner, buffer)
        peer.sendall(words)
        reset(kind, own, peer)
        stream.resume()
        async with asyncio.timeout(60):
            await owner.told.wait()
        stream.close()
        return owner

    owner = uvloop.run(listen())
    assert owner.heard == words
    assert owner.over == ["failed"]
