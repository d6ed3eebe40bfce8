"""MySQL's packets up to the end of a login, as MySQL and MariaDB speak them: bytes, no sockets."""

import struct
from dataclasses import dataclass

HEADER_BYTES = 4
SCRAMBLE_BYTES = 20
SSL_REQUEST_BYTES = 32
RESERVED_BYTES = 19
# No packet of a login comes near it: connection attributes, its largest part, end at 64 KiB.
LOGIN_PACKET_MAX_BYTES = 131_072
PROTOCOL_VERSION = 10
UTF8MB4_GENERAL_CI = 45
AUTOCOMMIT = 2

# Capabilities. MariaDB's own are bits above 32, and are read only where LONG_PASSWORD, which only
# MySQL sets, is not.
LONG_PASSWORD = 1 << 0
LONG_FLAG = 1 << 2
CONNECT_WITH_DB = 1 << 3
COMPRESS = 1 << 5
PROTOCOL_41 = 1 << 9
SSL = 1 << 11
TRANSACTIONS = 1 << 13
SECURE_CONNECTION = 1 << 15
MULTI_RESULTS = 1 << 17
PLUGIN_AUTH = 1 << 19
CONNECT_ATTRS = 1 << 20
PLUGIN_AUTH_LENENC = 1 << 21
SESSION_TRACK = 1 << 23
DEPRECATE_EOF = 1 << 24
EXTENDED_SHIFT = 32

# By the first byte of a number that is longer than one: how many follow.
SIZES = {0xFC: 2, 0xFD: 3, 0xFE: 8}

# The first byte of what a server says during a login.
OK, AUTH_SWITCH, ERROR = 0x00, 0xFE, 0xFF


class MySqlWireError(Exception):
    """These bytes are not what the protocol has here."""


@dataclass(frozen=True, slots=True)
class Packet:
    sequence: int
    payload: bytes


@dataclass(frozen=True, slots=True)
class Greeting:
    """HandshakeV10: what a server says first."""

    version: str
    capabilities: int
    scramble: bytes
    plugin: bytes
    thread_id: int = 0
    collation: int = UTF8MB4_GENERAL_CI
    status: int = AUTOCOMMIT


@dataclass(frozen=True, slots=True)
class HandshakeResponse:
    """HandshakeResponse41. `attributes` are kept as they came; `tail` is what newer clients add."""

    capabilities: int
    packet_max_bytes: int
    collation: int
    username: bytes
    answer: bytes
    database: bytes | None = None
    plugin: bytes | None = None
    attributes: bytes | None = None
    reserved: bytes = bytes(RESERVED_BYTES)
    tail: bytes = b""


@dataclass(frozen=True, slots=True)
class ServerError:
    code: int
    sqlstate: str
    message: str


def frame(payload: bytes, sequence: int) -> bytes:
    if len(payload) > LOGIN_PACKET_MAX_BYTES:
        raise MySqlWireError("the packet is too large")
    return len(payload).to_bytes(3, "little") + bytes((sequence & 0xFF,)) + payload


def take_packet(received: bytearray) -> Packet | None:
    """Takes the first packet off what was received; None while it is not all there."""
    if len(received) < HEADER_BYTES:
        return None
    size = int.from_bytes(received[:3], "little")
    if size > LOGIN_PACKET_MAX_BYTES:
        raise MySqlWireError("the packet is too large")
    if len(received) < HEADER_BYTES + size:
        return None
    packet = Packet(received[3], bytes(received[HEADER_BYTES : HEADER_BYTES + size]))
    del received[: HEADER_BYTES + size]
    return packet


class _Reader:
    def __init__(self, data: bytes) -> None:
        self._data = data
        self._position = 0

    @property
    def left(self) -> int:
        return len(self._data) - self._position

    def take(self, count: int) -> bytes:
        if count > self.left:
            raise MySqlWireError("the packet ends early")
        self._position += count
        return self._data[self._position - count : self._position]

    def number(self, size: int) -> int:
        return int.from_bytes(self.take(size), "little")

    def until_nul(self) -> bytes:
        """A missing NUL at the end of the packet is forgiven, as servers do."""
        end = self._data.find(b"\0", self._position)
        if end < 0:
            return self.take(self.left)
        found = self._data[self._position : end]
        self._position = end + 1
        return found

    def vector(self) -> bytes:
        """A string after its length-encoded length."""
        return self.take(self.count())

    def value(self) -> bytes | None:
        """Of a row; None stands for NULL."""
        if self._data[self._position : self._position + 1] == b"\xfb":
            self._position += 1
            return None
        return self.vector()

    def count(self) -> int:
        """A length-encoded number."""
        first = self.number(1)
        if first in {0xFB, 0xFF}:
            raise MySqlWireError("invalid length")
        return self.number(SIZES[first]) if first in SIZES else first


def read_count(payload: bytes) -> int:
    """How many columns an answer has."""
    return _Reader(payload).count()


def read_row(payload: bytes, columns: int) -> list[bytes | None]:
    reader = _Reader(payload)
    found = [reader.value() for _ in range(columns)]
    if reader.left:
        raise MySqlWireError("the packet is longer than its row")
    return found


def vector(data: bytes) -> bytes:
    size = len(data)
    if size < 0xFB:  # noqa: PLR2004 - the first byte that says how many bytes the length has
        return bytes((size,)) + data
    marker, width = (0xFC, 2) if size <= 0xFFFF else (0xFD, 3)  # noqa: PLR2004
    return bytes((marker,)) + size.to_bytes(width, "little") + data


def _nul_ended(data: bytes) -> bytes:
    if b"\0" in data:
        raise MySqlWireError("a name contains a NUL character")
    return data + b"\0"


def build_greeting(greeting: Greeting) -> bytes:
    low, high = greeting.capabilities & 0xFFFF, greeting.capabilities >> 16 & 0xFFFF
    return b"".join(
        (
            bytes((PROTOCOL_VERSION,)),
            _nul_ended(greeting.version.encode("latin-1")),
            struct.pack("<I", greeting.thread_id),
            greeting.scramble[:8] + b"\0",
            struct.pack("<HBHH", low, greeting.collation, greeting.status, high),
            bytes((len(greeting.scramble) + 1,)) + bytes(6),
            struct.pack("<I", greeting.capabilities >> EXTENDED_SHIFT),
            greeting.scramble[8:] + b"\0",
            _nul_ended(greeting.plugin),
        )
    )


def parse_greeting(payload: bytes) -> Greeting:
    reader = _Reader(payload)
    if reader.number(1) != PROTOCOL_VERSION:
        raise MySqlWireError("unknown version of the greeting")
    version = reader.until_nul().decode("latin-1")
    thread_id = reader.number(4)
    scramble = reader.take(8)
    reader.take(1)
    low, collation, status, high = struct.unpack("<HBHH", reader.take(7))
    size = reader.number(1)
    reader.take(6)
    extended = reader.number(4)
    capabilities = low | high << 16
    if not capabilities & LONG_PASSWORD:
        capabilities |= extended << EXTENDED_SHIFT
    # The second part ends with a NUL that is no part of it.
    scramble += reader.take(max(13, size - 8))[:-1] if size or reader.left else b""
    plugin = reader.until_nul()
    return Greeting(version, capabilities, scramble, plugin, thread_id, collation, status)


def wants_tls(payload: bytes) -> bool:
    """Whether a client's first packet is an SSLRequest, and not a login in the clear."""
    if len(payload) < 2:  # noqa: PLR2004 - half of the capabilities
        raise MySqlWireError("the packet ends early")
    return bool(int.from_bytes(payload[:4], "little") & SSL) and len(payload) == SSL_REQUEST_BYTES


def _head(response: HandshakeResponse) -> bytes:
    low = response.capabilities & 0xFFFF_FFFF
    extended = response.capabilities >> EXTENDED_SHIFT
    return b"".join(
        (
            struct.pack("<IIB", low, response.packet_max_bytes, response.collation),
            response.reserved,
            struct.pack("<I", extended),
        )
    )


def build_tls_request(capabilities: int) -> bytes:
    """SSLRequest: the beginning of a login, after which TLS is made."""
    low = (capabilities | SSL) & 0xFFFF_FFFF
    head = struct.pack("<IIB", low, LOGIN_PACKET_MAX_BYTES, UTF8MB4_GENERAL_CI)
    return head.ljust(SSL_REQUEST_BYTES, b"\0")


def _read_head(reader: _Reader) -> tuple[int, int, int, bytes]:
    capabilities, packet_max_bytes, collation = struct.unpack("<IIB", reader.take(9))
    reserved = reader.take(RESERVED_BYTES)
    extended = reader.number(4)
    if not capabilities & PROTOCOL_41:
        raise MySqlWireError("a client older than MySQL 4.1")
    if not capabilities & LONG_PASSWORD:
        capabilities |= extended << EXTENDED_SHIFT
    return capabilities, packet_max_bytes, collation, reserved


def build_response(response: HandshakeResponse) -> bytes:
    """The capabilities decide what is written, as they decide what the server reads."""
    capabilities = response.capabilities
    parts = [
        _head(response),
        _nul_ended(response.username),
    ]
    if capabilities & PLUGIN_AUTH_LENENC:
        parts.append(vector(response.answer))
    elif capabilities & SECURE_CONNECTION:
        if len(response.answer) > 0xFF:  # noqa: PLR2004 - its length is one byte
            raise MySqlWireError("the answer is too long for this client")
        parts.append(bytes((len(response.answer),)) + response.answer)
    else:
        parts.append(_nul_ended(response.answer))
    if capabilities & CONNECT_WITH_DB:
        parts.append(_nul_ended(response.database or b""))
    if capabilities & PLUGIN_AUTH:
        parts.append(_nul_ended(response.plugin or b""))
    if capabilities & CONNECT_ATTRS:
        parts.append(vector(response.attributes or b""))
    return b"".join((*parts, response.tail))


def parse_response(payload: bytes) -> HandshakeResponse:
    """Also takes packets that leave out parts at their end, as servers do."""
    reader = _Reader(payload)
    capabilities, packet_max_bytes, collation, reserved = _read_head(reader)
    username = reader.until_nul()
    if capabilities & PLUGIN_AUTH_LENENC:
        answer = reader.vector()
    elif capabilities & SECURE_CONNECTION:
        answer = reader.take(reader.number(1))
    else:
        answer = reader.until_nul()
    database, plugin, attributes = None, None, None
    if capabilities & CONNECT_WITH_DB and reader.left:
        database = reader.until_nul()
    if capabilities & PLUGIN_AUTH and reader.left:
        plugin = reader.until_nul()
    if capabilities & CONNECT_ATTRS and reader.left:
        attributes = reader.vector()
    return HandshakeResponse(
        capabilities=capabilities,
        packet_max_bytes=packet_max_bytes,
        collation=collation,
        username=username,
        answer=answer,
        database=database,
        plugin=plugin,
        attributes=attributes,
        reserved=reserved,
        tail=reader.take(reader.left),
    )


def build_error(error: ServerError) -> bytes:
    head = bytes((ERROR,)) + struct.pack("<H", error.code)
    return head + b"#" + error.sqlstate.encode() + error.message.encode()


def parse_error(payload: bytes) -> ServerError:
    """Also of an error before the greeting, which has no SQLSTATE."""
    reader = _Reader(payload)
    if reader.number(1) != ERROR:
        raise MySqlWireError("not an ERR packet")
    code, rest = reader.number(2), reader.take(reader.left)
    sqlstate = "HY000"
    if rest[:1] == b"#":
        sqlstate, rest = rest[1:6].decode("ascii", "replace"), rest[6:]
    return ServerError(code, sqlstate, rest.decode("utf-8", "replace"))
