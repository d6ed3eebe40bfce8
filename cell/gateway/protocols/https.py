"""HTTPS: TLS first, one HTTP/1.1 connection to the instance per client connection."""

import orjson

from cell.gateway.refusal import Refusal

HEAD_ENDS = (b"\r\n\r\n", b"\n\n")
# A longer head is passed on as it is, for the engine to refuse.
HEAD_MAX_BYTES = 65_536
TLS_REQUIRED = "this port speaks TLS only: use https://"


class Https:
    alpn = ("http/1.1",)

    def plaintext_refusal(self, first: bytes) -> bytes | None:
        # Every method begins with a capital; anything else would not understand the answer.
        if not first[:1].isalpha():
            return None
        return _response("400 Bad Request", {"error": TLS_REQUIRED}, first)

    def has_begun(self, first: bytes | bytearray) -> bool:
        return len(first) >= HEAD_MAX_BYTES or any(end in first for end in HEAD_ENDS)

    def refusal(self, refusal: Refusal, first: bytes, *, problem: bool) -> bytes:
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
            first,
            media_type="application/problem+json" if problem else "application/json",
            retry_after_s=refusal.retry_after_s,
        )


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
