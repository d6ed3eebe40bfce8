"""HTTPS: TLS first, one HTTP connection to the instance per client connection."""

import struct

import orjson

from cell.gateway.protocols.front import Begun
from cell.gateway.protocols.tls_first import TlsFirst
from cell.gateway.refusal import Refusal

HEAD_ENDS = (b"\r\n\r\n", b"\n\n")
# A longer head is passed on as it is, for the engine to refuse.
HEAD_MAX_BYTES = 65_536
# Enough to know the method, or HTTP/2, by.
FIRST_BYTES = 16
HTTP2 = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
SETTINGS, GOAWAY, ENHANCE_YOUR_CALM = 4, 7, 11
TLS_REQUIRED = "this port speaks TLS only: use https://"


class Https:
    """HTTP/1.1 for all, and HTTP/2 where a route says so (gRPC)."""

    alpn = ("http/1.1",)

    def talk(self) -> "HttpsTalk":
        return HttpsTalk()


class HttpsTalk(TlsFirst):
    def __init__(self) -> None:
        self._first = b""

    def plaintext_refusal(self, first: bytes) -> bytes | None:
        # Every method begins with a capital; anything else would not understand the answer.
        if not first[:1].isalpha():
            return None
        return _response("400 Bad Request", {"error": TLS_REQUIRED}, first)

    def begin(self, received: bytearray) -> Begun | None:
        whole = len(received) >= HEAD_MAX_BYTES or any(end in received for end in HEAD_ENDS)
        if not whole:
            return None
        self._first = bytes(received[:FIRST_BYTES])
        return Begun(bytes(received))

    def refusal(self, refusal: Refusal, *, problem: bool) -> bytes:
        if self._first == HTTP2[:FIRST_BYTES]:
            return _http2_refusal(refusal.text)
        body: dict[str, object] = {"error": refusal.text}
        if problem:
            body = {
                "type": f"urn:menagerie:problem:{refusal.kind}",
                "title": "Service Unavailable",
                "status": 503,
                "detail": refusal.text,
                "code": refusal.kind,
            }
        return _response(
            "503 Service Unavailable",
            body,
            self._first,
            media_type="application/problem+json" if problem else "application/json",
            retry_after_s=refusal.retry_after_s,
        )


def _http2_refusal(text: str) -> bytes:
    """An empty SETTINGS frame, which must come first, and a GOAWAY that says why."""
    goaway = struct.pack("!II", 0, ENHANCE_YOUR_CALM) + text.encode()
    return _frame(SETTINGS, b"") + _frame(GOAWAY, goaway)


def _frame(kind: int, payload: bytes) -> bytes:
    return len(payload).to_bytes(3, "big") + struct.pack("!BBI", kind, 0, 0) + payload


def _response(
    status: str,
    body: dict[str, object],
    first: bytes,
    media_type: str = "application/json",
    retry_after_s: int | None = None,
) -> bytes:
    content = orjson.dumps(body)
    lines = [
        f"HTTP/1.1 {status}",
        f"content-type: {media_type}",
        f"content-length: {len(content)}",
        "cache-control: no-store",
        "connection: close",
    ]
    if retry_after_s is not None:
        lines.append(f"retry-after: {retry_after_s}")
    head = "\r\n".join([*lines, "", ""]).encode()
    return head if first.startswith(b"HEAD ") else head + content
