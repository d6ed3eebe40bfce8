"""MongoDB's wire protocol: TLS first, then messages. A refusal answers the first of them."""

import struct
from dataclasses import dataclass
from typing import Literal

from gateway.protocols.interface import FirstRequest, PlainReply, Rejected, SideRequest
from gateway.protocols.tls_first import HANDSHAKE_RECORD, TlsFirst
from gateway.refusal import Kind, Refusal

HEADER = struct.Struct("<iiii")
OP_REPLY, OP_QUERY, OP_MSG = 1, 2004, 2013
# A driver's first message says hello and names the client; this is far above any of them.
MESSAGE_MAX_BYTES = 65_536
TLS_REQUIRED = "this port accepts TLS only: use tls=true"
DOUBLE, STRING, INT32 = 1, 2, 16


@dataclass(frozen=True, slots=True)
class Code:
    """Of MongoDB's own table. Drivers try again after the codes that mean the network."""

    number: int
    name: str


HOST_UNREACHABLE = Code(6, "HostUnreachable")
TLS_FAILED = Code(141, "SSLHandshakeFailed")
OVERLOADED = Code(462, "IngressRequestRateLimitExceeded")
CODES: dict[Kind, Code] = {"too_many_connections": OVERLOADED}


@dataclass(frozen=True, slots=True)
class Message:
    size_bytes: int
    request_id: int
    operation: int


class MongoDb:
    alpn = ()

    def dialogue(self) -> "MongoDbDialogue":
        return MongoDbDialogue()


class MongoDbDialogue(TlsFirst):
    def __init__(self) -> None:
        self._header = b""

    def before_tls(
        self, received: bytearray
    ) -> Literal["tls"] | PlainReply | Rejected | SideRequest | None:
        if received and received[0] != HANDSHAKE_RECORD and len(received) < HEADER.size:
            return None
        return super().before_tls(received)

    def plaintext_refusal(self, first: bytes) -> bytes | None:
        return _answer(first, TLS_REQUIRED, TLS_FAILED) or None

    def begin(self, received: bytearray) -> FirstRequest | None:
        """Waits for the whole first message, since a refusal can only answer a message."""
        if len(received) < HEADER.size:
            return None
        message = _message(received)
        if message is not None and len(received) < message.size_bytes:
            return None
        self._header = bytes(received[: HEADER.size])
        return FirstRequest(bytes(received))

    def refusal(self, refusal: Refusal, *, problem: bool) -> bytes:  # noqa: ARG002 - engines only
        return _answer(self._header, refusal.text, CODES.get(refusal.kind, HOST_UNREACHABLE))


def _message(first: bytes | bytearray) -> Message | None:
    """None where it is no message that a client begins with."""
    if len(first) < HEADER.size:
        return None
    size, request_id, _, operation = HEADER.unpack_from(first)
    if operation not in {OP_QUERY, OP_MSG} or not HEADER.size <= size <= MESSAGE_MAX_BYTES:
        return None
    return Message(size, request_id, operation)


def _answer(first: bytes, text: str, code: Code) -> bytes:
    """Nothing where there is no message to answer."""
    message = _message(first)
    if message is None:
        return b""
    document = _document(text, code)
    if message.operation == OP_MSG:
        operation, body = OP_MSG, bytes(4) + b"\0" + document
    else:
        # Flags, cursor, position, number of documents.
        operation, body = OP_REPLY, struct.pack("<iqii", 0, 0, 0, 1) + document
    return HEADER.pack(HEADER.size + len(body), 0, message.request_id, operation) + body


def _document(text: str, code: Code) -> bytes:
    elements = b"".join(
        (
            _element(DOUBLE, "ok", struct.pack("<d", 0.0)),
            _element(STRING, "errmsg", _string(text)),
            _element(INT32, "code", struct.pack("<i", code.number)),
            _element(STRING, "codeName", _string(code.name)),
        )
    )
    return struct.pack("<i", len(elements) + 5) + elements + b"\0"


def _element(kind: int, name: str, value: bytes) -> bytes:
    return bytes((kind,)) + name.encode() + b"\0" + value


def _string(text: str) -> bytes:
    data = text.encode()
    return struct.pack("<i", len(data) + 1) + data + b"\0"
