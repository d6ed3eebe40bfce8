"""HTTPS: TLS first, one HTTP connection to the instance per client connection."""

import re
import struct

import orjson

from gateway.protocols.interface import FirstRequest, Step
from gateway.protocols.postgres_login import Logins
from gateway.protocols.tls_first import TlsFirst
from gateway.refusal import Refusal

HEAD_ENDS = (b"\r\n\r\n", b"\n\n")
# A longer head is passed on as it is, for the engine to refuse.
HEAD_MAX_BYTES = 65_536
# Enough to know the method by.
FIRST_BYTES = 16
SETTINGS, GOAWAY, ENHANCE_YOUR_CALM = 4, 7, 11
TLS_REQUIRED = "this port accepts TLS only: use https://"


# Who is answered 2xx to a request with credentials is let in, unless anybody may ask it. A target
# that could be written in another way to the same end tells nothing.
CREDENTIALS = re.compile(rb"\n(?:authorization|api-key|x-api-key):", re.IGNORECASE)
ASKS_FOR_ITS_OWN = re.compile(
    rb"(?!OPTIONS)[A-Z]+ /(?!(?:health|healthz|livez|readyz|openapi\.json|docs)[ ?/])"
    rb"\w[\w.-]*(?:/\w[\w.-]*)*/?[ ?]"
)
CODED = re.compile(rb"\ntransfer-encoding:", re.IGNORECASE)
LENGTH = re.compile(rb"\ncontent-length:[ \t]*([0-9]{1,18})[ \t]*(?:\r?\n|$)", re.IGNORECASE)
# Pages of other origins ask for leave first, without credentials, and on the same connection.
PREFLIGHT = re.compile(rb"OPTIONS /[^\r\n]*\r\n(?:[^\r\n]+\r\n)+\r\n")
GIVEN_LEAVE = re.compile(rb"HTTP/1\.1 20[04] [^\r\n]*\r\n(?:[^\r\n]+\r\n)+\r\n")
EMPTY = re.compile(rb"\ncontent-length:[ \t]*0[ \t]*\r\n|^HTTP/1\.1 204", re.IGNORECASE)
ACCEPTED, INTERIM = b"HTTP/1.1 2", b"HTTP/1.1 1"
FIRST_BYTES_OF_ANSWER = 4_096


class Https:
    """HTTP/1.1 for all, and HTTP/2 where a route says so (gRPC)."""

    alpn = ("http/1.1",)

    def dialogue(self) -> "HttpsDialogue":
        return HttpsDialogue()


class HttpsDialogue(TlsFirst):
    def __init__(self) -> None:
        self._first = b""
        self._is_http2 = False
        self._has_credentials = False
        self._to_come: int | None = 0
        self._answered = b""
        self._asks_leave = False
        self._next: bytes | None = None

    @property
    def evictable(self) -> bool:
        return not self._has_credentials or self._to_come != 0

    def plaintext_refusal(self, first: bytes) -> bytes | None:
        # Every method begins with a capital; anything else would not understand the answer.
        if not first[:1].isalpha():
            return None
        return _response("400 Bad Request", {"error": TLS_REQUIRED}, first)

    def tls_agreed(self, protocol: str | None) -> None:
        self._is_http2 = protocol == "h2"

    def begin(self, received: bytearray) -> FirstRequest | None:
        whole = any(end in received for end in HEAD_ENDS)
        if not whole and len(received) < HEAD_MAX_BYTES:
            return None
        self._first = bytes(received[:FIRST_BYTES])
        self._look(bytes(received), whole=whole)
        return FirstRequest(bytes(received))

    def _look(self, received: bytes, *, whole: bool) -> None:
        """What a request shows, from its beginning on."""
        head = re.split(rb"\r?\n\r?\n", received, maxsplit=1)[0]
        self._has_credentials = bool(ASKS_FOR_ITS_OWN.match(head) and CREDENTIALS.search(head))
        # An engine waits for the rest of a head that is not whole, and works on nothing meanwhile.
        self._to_come = _bytes_to_come(received, head) if whole else None
        self._asks_leave = self._to_come == 0 and PREFLIGHT.fullmatch(received) is not None

    # A client that shows no credentials with its first request, or wrong ones, stays among those
    # who have not logged in: what it asks later need not begin where a message does. Unless it has
    # asked for leave, and for nothing else until it had that: neither message has a body.

    def opened(
        self,
        first: bytes,
        instance_id: str | None,
        logins: Logins,  # noqa: ARG002 - of the seam
    ) -> Step:
        # Its beginning alone proves nothing: an engine of HTTP/1.1 waits for the rest of it.
        return Step(to_backend=first, spliced=instance_id is None or self._is_http2)

    def from_client(self, data: bytes) -> Step:
        if self._to_come:
            self._to_come = max(0, self._to_come - len(data))
        self._asks_leave = False
        if self._next is not None:
            self._next += data
            whole = any(end in self._next for end in HEAD_ENDS)
            if whole or len(self._next) >= HEAD_MAX_BYTES:
                self._look(self._next, whole=whole)
                self._next = None
        return Step(to_backend=data)

    def from_backend(self, data: bytes) -> Step:
        if self._asks_leave:
            self._hear_leave(data)
        if not self._has_credentials:
            return Step(to_client=data)
        self._answered += data[:FIRST_BYTES_OF_ANSWER]
        while self._answered.startswith(INTERIM) and b"\r\n\r\n" in self._answered:
            self._answered = self._answered.partition(b"\r\n\r\n")[2]
        if self._answered.startswith(INTERIM) or len(self._answered) < len(ACCEPTED):
            return Step(to_client=data)
        self._has_credentials = False
        accepted = self._answered.startswith(ACCEPTED)
        return Step(to_client=data, spliced=accepted, done=accepted)

    def _hear_leave(self, data: bytes) -> None:
        self._answered += data
        if GIVEN_LEAVE.fullmatch(self._answered) and EMPTY.search(self._answered):
            self._next = b""
        if b"\r\n\r\n" in self._answered or len(self._answered) > FIRST_BYTES_OF_ANSWER:
            self._asks_leave, self._answered = False, b""

    def refusal(self, refusal: Refusal, *, problem: bool) -> bytes:
        if self._is_http2:
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


def _bytes_to_come(received: bytes, head: bytes) -> int | None:
    """How much of the first request's body is missing yet; None where that is not known."""
    if CODED.search(head):
        return None
    length = LENGTH.search(head)
    body = re.split(rb"\r?\n\r?\n", received, maxsplit=1)[1:]
    return max(0, int(length[1]) - sum(map(len, body))) if length else 0


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
