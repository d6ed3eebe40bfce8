"""Owns Reply, what a handler answers, and its encoding."""

from collections.abc import AsyncIterator, Iterator, Mapping
from typing import Any, Self

import orjson

JSON = "application/json"
Chunk = bytes | str
Chunks = Iterator[Chunk] | AsyncIterator[Chunk]
RawHeaders = list[tuple[bytes, bytes]]

_BODILESS = frozenset({204, 205, 304})
_NOSNIFF = (b"x-content-type-options", b"nosniff")
# Answers may hold what only this caller may see; a handler that knows better says so.
_NO_STORE = (b"cache-control", b"no-store")


class Reply:
    """An answer: `body` is JSON-ready, or bytes that are sent as they are, or text for text types.

    A header's value may be a list of strings where it is sent more than once (`Set-Cookie`).
    """

    __slots__ = ("body", "chunks", "headers", "is_live", "media_type", "status")

    def __init__(
        self,
        status: int,
        body: Any = None,
        headers: Mapping[str, str | list[str]] | None = None,
        media_type: str = JSON,
    ) -> None:
        self.status = status
        self.body = body
        self.headers: dict[str, str | list[str]] = dict(headers) if headers else {}
        self.media_type = media_type
        self.chunks: Chunks | None = None
        self.is_live = False

    def __repr__(self) -> str:
        # The body may hold a secret, and a repr ends up in logs.
        return f"<Reply {self.status} {self.media_type}>"

    @classmethod
    def ok(cls, body: Any) -> Self:
        return cls(200, body)

    @classmethod
    def created(cls, body: Any, location: str | None = None) -> Self:
        return cls(201, body, {"Location": location} if location else None)

    @classmethod
    def accepted(cls, body: Any, location: str | None = None) -> Self:
        return cls(202, body, {"Location": location} if location else None)

    @classmethod
    def no_content(cls) -> Self:
        return cls(204)

    @classmethod
    def text(cls, text: str, media_type: str = "text/plain; charset=utf-8") -> Self:
        return cls(200, text, None, media_type)

    @classmethod
    def stream(cls, chunks: Chunks, media_type: str = "application/octet-stream") -> Self:
        """As long as it takes. Of a plain iterator, a thread is held for each step of it alone."""
        reply = cls(200, None, None, media_type)
        reply.chunks = chunks
        return reply

    @classmethod
    def live(cls, chunks: AsyncIterator[Chunk], media_type: str = "text/event-stream") -> Self:
        """Without an end of its own: it ends with the server at the latest."""
        reply = cls.stream(chunks, media_type)
        # Proxies that collect an answer before they pass it on would pass on nothing.
        reply.headers["X-Accel-Buffering"] = "no"
        reply.is_live = True
        return reply

    @property
    def has_body(self) -> bool:
        return self.status not in _BODILESS and (self.body is not None or self.chunks is not None)

    def encode(self) -> bytes:
        """The body as bytes; raises TypeError when it cannot be JSON."""
        body = self.body
        if isinstance(body, bytes):
            return body
        if body is None or self.status in _BODILESS:
            return b""
        if isinstance(body, str) and not is_json(self.media_type):
            return body.encode()
        return orjson.dumps(body)


def is_json(media_type: str) -> bool:
    kind = media_type.partition(";")[0].strip().lower()
    return kind == JSON or kind.endswith("+json")


def as_reply(answer: Any) -> Reply:
    """A handler may answer a Reply, or any JSON value, which means 200; None means 204."""
    if isinstance(answer, Reply):
        return answer
    if answer is None:
        return Reply(204)
    return Reply(200, answer)


def raw_headers(reply: Reply, request_id: str, length: int) -> RawHeaders:
    """The header fields of a reply; raises ValueError where one would end its line early."""
    raw = [(b"x-request-id", request_id.encode()), _NOSNIFF]
    if reply.headers:
        _add_fields(raw, reply.headers)
    else:
        raw.append(_NO_STORE)
    if reply.status in _BODILESS:
        return raw
    if reply.body is not None or reply.chunks is not None:
        raw.append((b"content-type", reply.media_type.encode("latin-1")))
    if reply.chunks is None:
        raw.append((b"content-length", b"%d" % length))
    return raw


def _add_fields(raw: RawHeaders, headers: Mapping[str, str | list[str]]) -> None:
    stored = False
    for name, value in headers.items():
        key = name.lower()
        stored = stored or key == "cache-control"
        for single in value if isinstance(value, list) else [value]:
            if "\r" in single or "\n" in single or "\0" in single:
                raise ValueError(f"the value of header {name} contains a line break")
            raw.append((key.encode("latin-1"), single.encode("latin-1")))
    if not stored:
        raw.append(_NO_STORE)
