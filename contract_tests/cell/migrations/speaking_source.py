"""A server that speaks PostgreSQL's protocol and answers each query with what a test wants."""

import contextlib
import re
import socket
import struct
from collections.abc import Mapping
from dataclasses import dataclass, field

from contract_tests.cell.migrations.listening import listening

FACTS = (
    b'{"version": "17.1", "number": 170001, "bytes": 1000, "encoding": "UTF8", "collation": "C",'
    b' "recovering": false, "wal_level": "logical", "slots_max": 9, "senders_max": 9,'
    b' "replicates": true, "publishes": true, "large_objects": 0}'
)
TABLE = (
    b'{"schema": "public", "name": "t", "persistence": "p", "bytes": 10, "rows": 1, "key": true,'
    b' "owned": true, "columns": ["a"]}'
)
USUAL: dict[bytes, list[bytes]] = {
    b"wal_level": [FACTS],
    b"relreplident": [TABLE],
    b"DISTINCT c.relowner": [b"1"],
    b"relacl": [b"0"],
}
NO_TLS = 80877103
ECHOED = re.compile(rb"\s*SELECT '([0-9a-f]{32})'")
COLUMN = struct.pack("!H", 1) + b"said\0" + struct.pack("!IhIhih", 0, 0, 114, -1, -1, 0)


@dataclass
class SpeakingSource:
    """`answers`: the rows of the queries that contain a text; others have none."""

    answers: dict[bytes, list[bytes]]
    port: int = 0
    asked: list[bytes] = field(default_factory=list)

    @property
    def uri(self) -> str:
        return f"postgresql://u:p@127.0.0.1:{self.port}/name"

    def serve(self, connected: socket.socket) -> None:
        with connected, contextlib.suppress(OSError), connected.makefile("rb") as heard:
            while True:
                size, code = struct.unpack("!II", heard.read(8))
                heard.read(size - 8)
                if code != NO_TLS:
                    break
                connected.sendall(b"N")
            parameters = b"server_version\x0017.1\0", b"client_encoding\0UTF8\0"
            greeting = [_message(b"R", bytes(4)), *(_message(b"S", each) for each in parameters)]
            connected.sendall(b"".join([*greeting, _message(b"Z", b"I")]))
            while kind := heard.read(1):
                (size,) = struct.unpack("!I", heard.read(4))
                query = heard.read(size - 4)
                if kind == b"Q":
                    self.asked.append(query)
                    self._answer(connected, query)

    def _answer(self, connected: socket.socket, query: bytes) -> None:
        rows = next((rows for text, rows in self.answers.items() if text in query), [])
        if echoed := ECHOED.match(query):
            rows = [echoed[1]]
        connected.sendall(_message(b"T", COLUMN))
        held: list[bytes] = []
        for number, row in enumerate(rows):
            held.append(_message(b"D", struct.pack("!HI", 1, len(row)) + row))
            if number % 1000 == 0:
                connected.sendall(b"".join(held))
                held = []
        ended = _message(b"C", b"SELECT\0") + _message(b"Z", b"I")
        connected.sendall(b"".join([*held, ended]))


def speaking(
    answers: Mapping[bytes, list[bytes]],
) -> contextlib.AbstractContextManager[SpeakingSource]:
    # A query gets the first that fits, so those of the test come before the usual ones.
    usual = {k: v for k, v in USUAL.items() if k not in answers}
    return listening(SpeakingSource({**answers, **usual}))


def _message(kind: bytes, content: bytes) -> bytes:
    return kind + struct.pack("!I", len(content) + 4) + content
