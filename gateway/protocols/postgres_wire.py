"""The first packets of PostgreSQL's protocol: what clients say before a session runs."""

import re
import struct
from dataclasses import dataclass

SSL_REQUEST = struct.pack("!II", 8, 80877103)
GSSENC_REQUEST = struct.pack("!II", 8, 80877104)
CANCEL_CODE = 80877102
HEADER_BYTES = 8
# PostgreSQL's own bound of a startup packet.
STARTUP_MAX_BYTES = 10_000
SECRET_BYTES = range(4, 257)
BACKEND_KEY_DATA, READY_FOR_QUERY = ord("K"), ord("Z")
KEY_DATA_MAX_BYTES = 5 + 4 + 256
# As `options=endpoint=postgres-01abc`; among other options it is one word of its own.
ENDPOINT = re.compile(rb"(?:^|(?<=\s))endpoint=(\S+)\s*")


class PostgresWireError(Exception):
    """These bytes are no packet that PostgreSQL would take."""


@dataclass(frozen=True, slots=True)
class Startup:
    """`parameters` in order; where one is named twice the backend takes the last."""

    version: int
    parameters: tuple[tuple[bytes, bytes], ...]

    def values(self, name: bytes) -> list[bytes]:
        return [value for key, value in self.parameters if key == name]


@dataclass(frozen=True, slots=True)
class Cancel:
    pid: int
    secret: bytes


def packet_size(received: bytes | bytearray) -> int | None:
    """Of the packet without a type that comes first; None where too little has come."""
    if len(received) < HEADER_BYTES:
        return None
    size, code = struct.unpack_from("!II", received)
    most = HEADER_BYTES + 4 + SECRET_BYTES[-1] if code == CANCEL_CODE else STARTUP_MAX_BYTES
    if not HEADER_BYTES <= size <= most:
        raise PostgresWireError("invalid length of startup packet")
    return int(size)


def parse(packet: bytes) -> Startup | Cancel:
    """A whole packet without a type."""
    code = struct.unpack_from("!I", packet, 4)[0]
    if code == CANCEL_CODE:
        secret = packet[12:]
        if len(secret) not in SECRET_BYTES:
            raise PostgresWireError("invalid length of cancel request")
        return Cancel(struct.unpack_from("!I", packet, 8)[0], secret)
    if code >> 16 != 3:  # noqa: PLR2004 - the protocol's major version since 2003
        raise PostgresWireError(f"unsupported frontend protocol {code >> 16}.{code & 0xFFFF}")
    words = packet[HEADER_BYTES:].split(b"\0")
    # Names and values, each ended by a zero byte, and one more.
    if len(words) % 2 or words[-2:] != [b"", b""]:
        raise PostgresWireError("invalid startup packet layout: expected terminator as last byte")
    names, values = words[:-2:2], words[1:-2:2]
    if b"" in names:
        raise PostgresWireError("invalid startup packet layout: a parameter without a name")
    return Startup(code, tuple(zip(names, values, strict=True)))


def build(startup: Startup) -> bytes:
    body = b"".join(name + b"\0" + value + b"\0" for name, value in startup.parameters) + b"\0"
    return struct.pack("!II", HEADER_BYTES + len(body), startup.version) + body


def cancel_request(cancel: Cancel) -> bytes:
    size = HEADER_BYTES + 4 + len(cancel.secret)
    return struct.pack("!III", size, CANCEL_CODE, cancel.pid) + cancel.secret


def key_data(pid: int, secret: bytes) -> bytes:
    return struct.pack("!cII", b"K", 8 + len(secret), pid) + secret


def take_endpoint(startup: Startup) -> tuple[Startup, str | None]:
    """The instance that is named in the options, and the startup without it."""
    found: list[bytes] = []
    parameters = []
    for name, value in startup.parameters:
        if name != b"options":
            parameters.append((name, value))
            continue
        found += ENDPOINT.findall(value)
        left = ENDPOINT.sub(b"", value).strip()
        if left:
            parameters.append((name, left))
    if not found:
        return startup, None
    return Startup(startup.version, tuple(parameters)), found[-1].decode("ascii", "replace")


def error(sqlstate: str, text: str, hint: str | None = None) -> bytes:
    """An ErrorResponse that ends the connection."""
    fields = [b"SFATAL", b"VFATAL", b"C" + sqlstate.encode(), b"M" + text.encode()]
    if hint is not None:
        fields.append(b"H" + hint.encode())
    body = b"".join(field + b"\0" for field in fields) + b"\0"
    return struct.pack("!cI", b"E", 4 + len(body)) + body


class Messages:
    """Cuts what a backend says into messages, and keeps back only what it must see whole."""

    def __init__(self) -> None:
        self._kept = b""
        self._passing_bytes = 0

    def take(self, data: bytes) -> tuple[bytes, bytes | None]:
        """What passes unseen, and then, from the message on that ends the start, all the rest.

        The second is None until that is there: it begins with a whole BackendKeyData, or with a
        ReadyForQuery where the backend gave no key.
        """
        data = self._kept + data
        position = self._passing_bytes
        while position + 5 <= len(data):
            kind, size = struct.unpack_from("!BI", data, position)
            if kind == READY_FOR_QUERY:
                return self._end(data, position)
            if kind == BACKEND_KEY_DATA:
                if not 4 + 4 <= size < KEY_DATA_MAX_BYTES:
                    raise PostgresWireError("the backend's key has an invalid length")
                if position + 1 + size > len(data):
                    break
                return self._end(data, position)
            if size < 4:  # noqa: PLR2004 - the length counts itself
                raise PostgresWireError("a message of the backend has an invalid length")
            position += 1 + size
        self._passing_bytes = max(0, position - len(data))
        self._kept = data[position:]
        return data[:position], None

    def _end(self, data: bytes, position: int) -> tuple[bytes, bytes]:
        self._kept = b""
        return data[:position], data[position:]
