"""Reading a ClientHello without OpenSSL: which host, and which protocols, a client asks for.

The allow-list is per instance and is checked before any cryptography is done, so the gateway reads
the name itself. Only lengths and three extensions are looked at; everything else is OpenSSL's.
"""

import struct
from dataclasses import dataclass

HANDSHAKE_RECORD = 0x16
CLIENT_HELLO = 0x01
RECORD_HEADER_BYTES = 5
RECORD_MAX_BYTES = 16_384
# Large enough for post-quantum key shares and long session tickets.
HELLO_MAX_BYTES = 65_536
# Whatever arrives of it is looked at from its beginning, so that many small records take long.
RECORDS_MAX = 64

SERVER_NAME = 0
ALPN = 16
SUPPORTED_VERSIONS = 43
HOST_NAME = 0
TLS_1_3 = b"\x03\x04"


class NotTlsError(Exception):
    """These bytes are not the beginning of a TLS connection."""


@dataclass(frozen=True, slots=True)
class ClientHello:
    server_name: str | None
    alpn: tuple[bytes, ...]
    offers_tls_1_3: bool


def parse(data: bytes | bytearray) -> ClientHello | None:
    """None while more bytes are needed."""
    message = _handshake_message(data)
    if message is None:
        return None
    try:
        return _read_hello(_Reader(message))
    except (struct.error, IndexError, UnicodeDecodeError) as error:
        raise NotTlsError("the ClientHello does not parse") from error


def _handshake_message(data: bytes | bytearray) -> bytes | None:
    """The first handshake message, joined from as many records as it was cut into."""
    message = bytearray()
    position = records = 0
    while len(data) - position >= RECORD_HEADER_BYTES:
        kind, major, _, length = struct.unpack_from("!BBBH", data, position)
        if kind != HANDSHAKE_RECORD or major != 3 or not 0 < length <= RECORD_MAX_BYTES:  # noqa: PLR2004 - the major version of every TLS
            raise NotTlsError("not a TLS handshake record")
        records += 1
        if records > RECORDS_MAX:
            raise NotTlsError("the ClientHello is cut into too many records")
        position += RECORD_HEADER_BYTES
        message += data[position : position + length]
        position += length
        if message and message[0] != CLIENT_HELLO:
            raise NotTlsError("the first handshake message is not a ClientHello")
        if len(message) >= 4:  # noqa: PLR2004 - type and length of a handshake message
            size = 4 + int.from_bytes(message[1:4], "big")
            if size > HELLO_MAX_BYTES:
                raise NotTlsError("the ClientHello is too large")
            if len(message) >= size:
                return bytes(message[4:size])
    if data and data[0] != HANDSHAKE_RECORD:
        raise NotTlsError("not a TLS handshake record")
    return None


class _Reader:
    def __init__(self, data: bytes) -> None:
        self.data = data
        self.position = 0

    def take(self, count: int) -> bytes:
        taken = self.data[self.position : self.position + count]
        if len(taken) != count:
            raise IndexError
        self.position += count
        return taken

    def number(self, size: int) -> int:
        return int.from_bytes(self.take(size), "big")

    def vector(self, length_size: int) -> bytes:
        return self.take(self.number(length_size))

    @property
    def left(self) -> int:
        return len(self.data) - self.position


def _read_hello(reader: _Reader) -> ClientHello:
    reader.take(2 + 32)  # version, random
    reader.vector(1)  # session id
    reader.vector(2)  # cipher suites
    reader.vector(1)  # compression methods
    name: str | None = None
    alpn: tuple[bytes, ...] = ()
    versions: tuple[bytes, ...] = ()
    extensions = _Reader(reader.vector(2) if reader.left else b"")
    while extensions.left:
        kind, body = extensions.number(2), extensions.vector(2)
        if kind == SERVER_NAME:
            name = _server_name(_Reader(body))
        elif kind == ALPN:
            alpn = _protocols(_Reader(body))
        elif kind == SUPPORTED_VERSIONS:
            versions = _versions(_Reader(body))
    return ClientHello(name, alpn, TLS_1_3 in versions)


def _server_name(reader: _Reader) -> str | None:
    names = _Reader(reader.vector(2))
    while names.left:
        kind, value = names.number(1), names.vector(2)
        if kind == HOST_NAME:
            return value.decode("ascii").lower().rstrip(".")
    return None


def _protocols(reader: _Reader) -> tuple[bytes, ...]:
    names = _Reader(reader.vector(2))
    found = []
    while names.left:
        found.append(names.vector(1))
    return tuple(found)


def _versions(reader: _Reader) -> tuple[bytes, ...]:
    versions = _Reader(reader.vector(1))
    found = []
    while versions.left:
        found.append(versions.take(2))
    return tuple(found)
