"""ClickHouse's native protocol: TLS first, then the client's hello. Over HTTPS it is `https`."""

import struct

from gateway.protocols.interface import FirstRequest
from gateway.protocols.tls_first import TlsFirst
from gateway.refusal import Refusal

SERVER_EXCEPTION = 2
NETWORK_ERROR = 210
TOO_MANY_SIMULTANEOUS_QUERIES = 202
TLS_REQUIRED = "this port accepts TLS only: connect with --secure"


class ClickHouse:
    alpn = ()

    def dialogue(self) -> "ClickHouseDialogue":
        return ClickHouseDialogue()


class ClickHouseDialogue(TlsFirst):
    def plaintext_refusal(self, first: bytes) -> bytes | None:
        # A hello begins with its packet's number, which is 0.
        return _exception(NETWORK_ERROR, TLS_REQUIRED) if first[:1] == b"\0" else None

    def begin(self, received: bytearray) -> FirstRequest | None:
        return FirstRequest(bytes(received)) if received else None

    def refusal(self, refusal: Refusal, *, problem: bool) -> bytes:  # noqa: ARG002 - engines only
        if refusal.kind == "too_many_connections":
            return _exception(TOO_MANY_SIMULTANEOUS_QUERIES, refusal.text)
        return _exception(NETWORK_ERROR, refusal.text)


def _exception(code: int, text: str) -> bytes:
    nested, stack_trace = b"\0", ""
    strings = ("DB::Exception", f"DB::Exception: {text}", stack_trace)
    head = bytes((SERVER_EXCEPTION,)) + struct.pack("<i", code)
    return head + b"".join(_string(each) for each in strings) + nested


def _string(text: str) -> bytes:
    data = text.encode()
    return _varint(len(data)) + data


def _varint(number: int) -> bytes:
    encoded = bytearray()
    while number > 0x7F:  # noqa: PLR2004 - seven bits a byte
        encoded.append(number & 0x7F | 0x80)
        number >>= 7
    encoded.append(number)
    return bytes(encoded)
