"""Between a cell and a MariaDB: passes everything on, until a question it answers otherwise."""

import contextlib
import socket
import struct
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from io import BufferedReader

Answer = Callable[["LyingProxy", socket.socket], None]
QUERY = 0x03
HEADER_BYTES = 4
WAIT_S = 30.0


@dataclass
class LyingProxy:
    """`after` is all that it was sent once it had answered otherwise."""

    server_port: int
    trigger: bytes
    answer: Answer
    port: int = 0
    after: bytearray = field(default_factory=bytearray)
    ended: threading.Event = field(default_factory=threading.Event)

    def serve(self, near: socket.socket) -> None:
        with (
            contextlib.suppress(OSError, EOFError),
            near,
            socket.create_connection(("127.0.0.1", self.server_port)) as far,
        ):
            threading.Thread(target=_pass_on, args=(far, near), daemon=True).start()
            try:
                self._listen_until_triggered(near, far)
            finally:
                # Closed alone, it would stay with the thread that reads from it.
                far.shutdown(socket.SHUT_RDWR)

    def _listen_until_triggered(self, near: socket.socket, far: socket.socket) -> None:
        heard = near.makefile("rb")
        while head := heard.read(HEADER_BYTES):
            payload = heard.read(int.from_bytes(head[:3], "little"))
            if head[3] == 0 and payload[:1] == bytes((QUERY,)) and self.trigger in payload:
                threading.Thread(target=self._listen, args=(heard,), daemon=True).start()
                self.answer(self, near)
                return
            far.sendall(head + payload)

    def _listen(self, heard: BufferedReader) -> None:
        with contextlib.suppress(OSError, ValueError):
            while block := heard.read1(65536):
                self.after += block


def _pass_on(far: socket.socket, near: socket.socket) -> None:
    with contextlib.suppress(OSError):
        while block := far.recv(65536):
            near.sendall(block)


@contextlib.contextmanager
def lying(server_port: int, trigger: bytes, answer: Answer) -> Iterator[LyingProxy]:
    proxy = LyingProxy(server_port, trigger, answer)
    with socket.create_server(("127.0.0.1", 0)) as listening:
        proxy.port = listening.getsockname()[1]

        def accept() -> None:
            while not proxy.ended.is_set():
                with contextlib.suppress(OSError):
                    connected, _ = listening.accept()
                    threading.Thread(target=proxy.serve, args=(connected,), daemon=True).start()

        thread = threading.Thread(target=accept, daemon=True)
        thread.start()
        yield proxy
        proxy.ended.set()
        listening.shutdown(socket.SHUT_RDWR)
        thread.join(5)


def packet(payload: bytes, sequence: int) -> bytes:
    return struct.pack("<I", len(payload))[:3] + bytes((sequence & 0xFF,)) + payload


def text(value: bytes) -> bytes:
    """With its length before it, which is short."""
    return bytes((len(value),)) + value


COLUMN = b"".join(map(text, (b"def", b"", b"", b"", b"said", b""))) + bytes(
    (0x0C, 45, 0, 255, 0, 0, 0, 253, 0, 0, 0, 0, 0)
)
MARK = b"\xfe\0\0\2\0"


def wants_a_file(_: LyingProxy, near: socket.socket) -> None:
    near.sendall(packet(b"\xfb/etc/passwd", 1))


def is_silent(proxy: LyingProxy, near: socket.socket) -> None:
    proxy.ended.wait(WAIT_S)


def hangs_up(_: LyingProxy, near: socket.socket) -> None:
    near.shutdown(socket.SHUT_RDWR)


def talks_nonsense(_: LyingProxy, near: socket.socket) -> None:
    near.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n" * 100)


def says(*values: bytes) -> Answer:
    """One row of them."""

    def answer(_: LyingProxy, near: socket.socket) -> None:
        count = bytes((len(values),))
        packets = [count, *(COLUMN for _ in values), MARK, b"".join(map(text, values)), MARK]
        near.sendall(b"".join(packet(each, n) for n, each in enumerate(packets, 1)))

    return answer


def never_ends(columns: int, value: bytes) -> Answer:
    """Rows of it without an end."""

    def answer(proxy: LyingProxy, near: socket.socket) -> None:
        packets = [bytes((columns,)), *(COLUMN for _ in range(columns)), MARK]
        near.sendall(b"".join(packet(each, n) for n, each in enumerate(packets, 1)))
        row, number = text(value) * columns, len(packets) + 1
        while not proxy.ended.is_set():
            near.sendall(b"".join(packet(row, number + n) for n in range(1024)))
            # 1024 is a multiple of what a sequence id counts to.

    return answer


def refuses(code: int, told: bytes) -> Answer:
    def answer(_: LyingProxy, near: socket.socket) -> None:
        near.sendall(packet(b"\xff" + struct.pack("<H", code) + b"#HY000" + told, 1))

    return answer
