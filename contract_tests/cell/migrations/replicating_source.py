"""A server that sends its replicas an RDB and then whatever a test wants."""

import contextlib
import socketserver
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

REPLID = "a" * 40


def command(*words: str | bytes) -> bytes:
    encoded = [word.encode() if isinstance(word, str) else word for word in words]
    told = b"".join(b"$%d\r\n%s\r\n" % (len(word), word) for word in encoded)
    return b"*%d\r\n%s" % (len(words), told)


@dataclass
class ReplicatingSource:
    """`history` is what it has sent since its RDB, all of which it still has.

    Unless it `forgets`; one that `drops` its replicas does so again and again.
    """

    rdb: bytes
    history: bytes = b""
    keys: str = ""
    more: int = 0
    port: int = 0
    fulls: int = 0
    begins_at: int = 1000
    acknowledged: int = 0
    ended: threading.Event = field(default_factory=threading.Event)
    forgets: bool = False
    drops: bool = False

    @property
    def uri(self) -> str:
        return f"redis://127.0.0.1:{self.port}"

    @property
    def ca_pem(self) -> None:
        return None

    @property
    def offset(self) -> int:
        return self.begins_at + len(self.history)

    def send(self, *commands: bytes) -> None:
        self.history += b"".join(commands)

    def info(self) -> bytes:
        told = (
            f"redis_version:7.0.15\r\nrole:master\r\nmaster_replid:{REPLID}\r\n"
            f"master_repl_offset:{self.offset + self.more}\r\n{self.keys}"
        )
        return b"$%d\r\n%s\r\n" % (len(told), told.encode())

    def is_acknowledged(self) -> bool:
        return self.acknowledged >= self.offset


class _Handler(socketserver.StreamRequestHandler):
    source: ReplicatingSource

    def handle(self) -> None:
        with contextlib.suppress(OSError, ValueError):
            while words := self._heard():
                name = words[0].upper()
                if name == b"INFO":
                    self.wfile.write(self.source.info())
                elif name == b"PSYNC":
                    self._replicate(words)
                    return
                elif name == b"SCAN":
                    self.wfile.write(b"-NOPERM no SCAN\r\n")
                else:
                    self.wfile.write(b"+OK\r\n")

    def _heard(self) -> list[bytes]:
        head = self.rfile.readline()
        if not head:
            return []
        found = []
        for _ in range(int(head[1:])):
            size = int(self.rfile.readline()[1:])
            found.append(self.rfile.read(size + 2)[:-2])
        return found

    def _replicate(self, words: list[bytes]) -> None:
        source = self.source
        offset = int(words[2])
        if words[1] == REPLID.encode() and not source.forgets:
            self.wfile.write(b"+CONTINUE\r\n")
            at = offset - 1 - source.begins_at
        else:
            source.fulls += 1
            at = 0
            told = f"+FULLRESYNC {REPLID} {source.begins_at}\r\n$%d\r\n" % len(source.rdb)
            self.wfile.write(told.encode() + source.rdb)
        threading.Thread(target=self._acknowledged, daemon=True).start()
        while not source.ended.is_set():
            piece = source.history[at:]
            self.wfile.write(piece)
            at += len(piece)
            time.sleep(0.02)
            if source.drops:
                return

    def _acknowledged(self) -> None:
        with contextlib.suppress(OSError, ValueError):
            while words := self._heard():
                if words[:2] == [b"REPLCONF", b"ACK"]:
                    self.source.acknowledged = int(words[2])


@contextmanager
def replicating(rdb: bytes) -> Iterator[ReplicatingSource]:
    source = ReplicatingSource(rdb)
    handler = type("Handler", (_Handler,), {"source": source})
    socketserver.ThreadingTCPServer.daemon_threads = True
    with socketserver.ThreadingTCPServer(("127.0.0.1", 0), handler) as server:
        server.handle_error = lambda *_: None  # type: ignore[method-assign]
        source.port = server.server_address[1]
        threading.Thread(target=server.serve_forever, daemon=True).start()
        try:
            yield source
        finally:
            source.ended.set()
            server.shutdown()
