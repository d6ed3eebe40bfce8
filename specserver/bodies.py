"""Owns request bodies: their media types, reading them, and what they leave unsaid."""

import copy
from collections.abc import Awaitable, Callable
from typing import Any

import orjson

from specserver.json_members import repeated
from specserver.json_sizes import why_too_deep, why_too_much
from specserver.problems import BadRequest, TooLarge, UnsupportedMediaType
from specserver.replies import is_json
from specserver.requests import Headers
from specserver.validation import Schema, Schemas, Violation

_MAX_SEEN = 64
_AGAIN = "is given more than once; give it once"


class ClientGone(Exception):  # noqa: N818 - it is no error of ours
    """The client closed the connection before it was answered."""


async def read_body(
    headers: Headers,
    limit: int,
    receive: Callable[[], Awaitable[Any]],
    grow: Callable[[int], None] | None = None,
) -> bytes:
    """The whole body; raises 413 as soon as it is known to be larger than `limit` bytes.

    `grow` is told the size that has arrived, and raises where it is more than can be held.
    """
    length = headers.raw(b"content-length")
    if length is not None and length.isdigit() and int(length) > limit:
        raise _too_large(limit)
    body: bytes | bytearray = b""
    more = True
    while more:
        event = await receive()
        if event["type"] == "http.disconnect":
            raise ClientGone
        chunk: bytes = event.get("body", b"")
        if len(body) + len(chunk) > limit:
            raise _too_large(limit)
        if grow is not None:
            grow(len(body) + len(chunk))
        more = event.get("more_body", False)
        if not body:
            body = chunk
        else:
            # One buffer: a list of what came byte by byte would take many times its size.
            body = body if isinstance(body, bytearray) else bytearray(body)
            body += chunk
    return bytes(body)


def _too_large(limit: int) -> TooLarge:
    # The rest of the body stays unread, so the connection is of no more use.
    return TooLarge(
        f"the body is larger than {limit} bytes", headers={"Connection": "close"}, limit_bytes=limit
    )


def _encoded() -> UnsupportedMediaType:
    return UnsupportedMediaType(
        "the body must not be compressed or otherwise encoded; send it without Content-Encoding",
        headers={"Accept-Encoding": "identity"},
    )


class Body:
    """The request body of one operation."""

    __slots__ = ("_kinds", "_seen", "required")

    def __init__(self, document: dict[str, Any], schemas: Schemas) -> None:
        self.required: bool = document.get("required", False)
        self._kinds = {
            media_type.partition(";")[0].strip().lower(): Kind(media_type, content, schemas)
            for media_type, content in document.get("content", {}).items()
        }
        # The same few spellings of a content type come again and again.
        self._seen: dict[bytes, Kind] = {}

    def read(self, headers: Headers, raw: bytes) -> tuple[Any, list[Violation]]:
        """The body's value and its violations; raises where it cannot be read at all."""
        content_type = headers.raw(b"content-type")
        if not raw:
            if self.required:
                return None, [_violation("required", "is required")]
            if content_type is None or not self._kinds:
                return None, []
        kind = self._seen.get(content_type or b"") or self._kind(content_type)
        if not raw:
            return None, []
        coding = headers.raw(b"content-encoding")
        if coding is not None and coding.strip().lower() != b"identity":
            raise _encoded()
        return kind.read(raw)

    def _kind(self, content_type: bytes | None) -> "Kind":
        media_type = (content_type or b"").partition(b";")[0].strip().lower().decode("latin-1")
        candidates = (media_type, media_type.partition("/")[0] + "/*", "*/*")
        for candidate in candidates if media_type else ("*/*",):
            if candidate in self._kinds:
                kind = self._kinds[candidate]
                if content_type is not None and len(self._seen) < _MAX_SEEN:
                    self._seen[content_type] = kind
                return kind
        raise UnsupportedMediaType(
            f"the body must be {' or '.join(self._kinds)}",
            headers={"Accept": ", ".join(self._kinds)},
        )


class Kind:
    """One media type of a body, and what is expected of it."""

    __slots__ = (
        "_checked",
        "_defaults",
        "_integers",
        "_is_json",
        "_schema",
        "parse",
    )

    def __init__(self, media_type: str, content: dict[str, Any], schemas: Schemas) -> None:
        schema = content.get("schema", True)
        self._schema: Schema = schemas.of(schema)
        properties = properties_of(schema)
        self._defaults = {
            name: inner["default"]
            for name, inner in properties.items()
            if isinstance(inner, dict) and "default" in inner
        }
        self._integers = tuple(name for name, inner in properties.items() if _is_integer(inner))
        self._is_json = is_json(media_type)
        self._checked = self._is_json and "schema" in content
        self.parse = self._parser(media_type)

    def _parser(self, media_type: str) -> Callable[[bytes], Any]:
        if self._is_json:
            return parse_json
        return _parse_text if media_type.startswith("text/") else bytes

    def read(self, raw: bytes) -> tuple[Any, list[Violation]]:
        if self._is_json and (too_much := why_too_much(raw)):
            return None, [_violation("size", too_much)]
        value = self.parse(raw)
        # Before the rest is looked at, which ends at fewer levels than JSON's parser.
        if self._is_json and (too_deep := why_too_deep(raw, value)):
            return None, [_violation("depth", too_deep)]
        if self._is_json and (again := repeated(raw, value)):
            return None, [_violation("uniqueNames", _AGAIN, pointer) for pointer in again]
        if self._checked and not self._schema.is_valid(value):
            return None, self._schema.violations(value)
        if isinstance(value, dict):
            self._complete(value)
        return value, []

    def _complete(self, value: dict[str, Any]) -> None:
        """Puts in what is left unsaid, and makes integers of 5.0 and 5e9, which JSON counts so."""
        for name, default in self._defaults.items():
            if name not in value:
                value[name] = copy.deepcopy(default)
        for name in self._integers:
            if type(value.get(name)) is float:
                value[name] = int(value[name])


def parse_json(raw: bytes) -> Any:
    try:
        return orjson.loads(raw)
    except orjson.JSONDecodeError as error:
        raise BadRequest(
            f"the body is not JSON: line {error.lineno}, column {error.colno}",
            code="malformed_json",
        ) from None


def _parse_text(raw: bytes) -> str:
    try:
        return raw.decode()
    except UnicodeDecodeError:
        raise BadRequest("the body is not UTF-8") from None


def properties_of(schema: Any) -> dict[str, Any]:
    """The members a schema describes at its top, those of its `allOf` included."""
    if not isinstance(schema, dict):
        return {}
    found: dict[str, Any] = {}
    for part in schema.get("allOf", ()):
        found |= properties_of(part)
    found |= schema.get("properties", {})
    return found


def _is_integer(schema: Any) -> bool:
    kind = schema.get("type") if isinstance(schema, dict) else None
    kinds = kind if isinstance(kind, list) else [kind]
    return "integer" in kinds and "number" not in kinds


def _violation(keyword: str, message: str, pointer: str = "") -> Violation:
    return {"pointer": pointer, "keyword": keyword, "message": message}
