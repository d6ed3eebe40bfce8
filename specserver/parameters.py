"""Owns parameters: from the text of a query, path, header or cookie to typed values."""

import re
from collections.abc import Callable, Sequence
from typing import Any
from urllib.parse import unquote_plus

from specserver.validation import Schema, Schemas, Violation

# Digits beyond this are no number anybody means, and cost quadratic time to read.
_MAX_DIGITS = 64

_INTEGER = re.compile(r"-?(0|[1-9][0-9]*)")
_NUMBER = re.compile(r"-?(0|[1-9][0-9]*)(\.[0-9]+)?([eE][+-]?[0-9]{1,3})?")
_STYLES = {"query": "form", "cookie": "form", "path": "simple", "header": "simple"}
_KEYWORDS_OF_TYPE = {"type", "description", "title", "default", "examples", "example", "items"}


class UnreadableError(ValueError):
    """The text is not of the parameter's type; the argument says what it must be."""


def _integer(text: str) -> int:
    if len(text) > _MAX_DIGITS or not _INTEGER.fullmatch(text):
        raise UnreadableError("must be an integer")
    return int(text)


def _number(text: str) -> int | float:
    if len(text) > _MAX_DIGITS or not _NUMBER.fullmatch(text):
        raise UnreadableError("must be a number")
    return int(text) if _INTEGER.fullmatch(text) else float(text)


def _boolean(text: str) -> bool:
    if text not in ("true", "false"):
        raise UnreadableError("must be true or false")
    return text == "true"


def _null(text: str) -> None:
    if text not in ("", "null"):
        raise UnreadableError("must be null")


def _string(text: str) -> str:
    return text


_READERS: dict[str, Callable[[str], Any]] = {
    # In the order they are tried where a schema allows several types.
    "boolean": _boolean,
    "integer": _integer,
    "number": _number,
    "null": _null,
    "string": _string,
}


def types_of(schema: Any) -> set[str]:
    """The JSON types a schema lets through, as far as its keywords say so."""
    if not isinstance(schema, dict):
        return set()
    named = schema.get("type", [])
    types = {named} if isinstance(named, str) else set(named)
    for keyword in ("anyOf", "oneOf", "allOf"):
        for branch in schema.get(keyword, ()):
            types |= types_of(branch)
    return types


def reader_of(schema: Any) -> Callable[[str], Any]:
    types = types_of(schema)
    readers = [reader for name, reader in _READERS.items() if name in types]
    if not readers or readers == [_string]:
        return _string
    if len(readers) == 1:
        return readers[0]
    return lambda text: _first_of(readers, text)


def _first_of(readers: Sequence[Callable[[str], Any]], text: str) -> Any:
    unread: list[str] = []
    for reader in readers:
        try:
            return reader(text)
        except UnreadableError as error:
            unread.append(str(error).removeprefix("must be "))
    raise UnreadableError("must be " + " or ".join(unread))


class Parameter:
    """One parameter of an operation, with its reader and its compiled schema."""

    __slots__ = (
        "_compiled",
        "_read",
        "default",
        "explode",
        "has_default",
        "is_array",
        "name",
        "place",
        "required",
    )

    def __init__(self, document: dict[str, Any], schemas: Schemas) -> None:
        self.name: str = document["name"]
        self.place: str = document["in"]
        self.required: bool = document.get("required", False)
        schema = document.get("schema", {})
        self.has_default = isinstance(schema, dict) and "default" in schema
        self.default = schema["default"] if self.has_default else None
        types = types_of(schema)
        self.is_array = "array" in types
        _check(document, types)
        self.explode: bool = document.get("explode", self.place in ("query", "cookie"))
        items = schema.get("items", {}) if isinstance(schema, dict) else {}
        self._read = reader_of(items if self.is_array else schema)
        self._compiled = _compile(schema, schemas)

    def read(self, texts: Sequence[str]) -> tuple[Any, list[Violation]]:
        """The value of what was sent under this name, or what is wrong with it."""
        try:
            value = self._value(texts)
        except UnreadableError as error:
            return None, [self.violation("type", str(error))]
        compiled = self._compiled
        if compiled is None or compiled.is_valid(value):
            return value, []
        return None, [
            self.violation(found["keyword"], found["message"])
            for found in compiled.violations(value)
        ]

    def _value(self, texts: Sequence[str]) -> Any:
        if self.is_array:
            if not self.explode or self.place in ("path", "header"):
                texts = [part for text in texts for part in self._split(text)]
            return [self._read(text) for text in texts]
        if len(texts) > 1:
            raise UnreadableError("must be given once")
        return self._read(texts[0])

    def _split(self, text: str) -> list[str]:
        parts = text.split(",") if text else []
        # A list in a header has optional space after its commas (RFC 9110).
        return [part.strip() for part in parts] if self.place == "header" else parts

    def violation(self, keyword: str, message: str) -> Violation:
        return {"parameter": self.name, "keyword": keyword, "message": message}


def _check(document: dict[str, Any], types: set[str]) -> None:
    """Raises ValueError for what this reads otherwise than the document says."""
    name, style = document["name"], _STYLES[document["in"]]
    if "content" in document or ("object" in types and "array" not in types):
        raise ValueError(f"parameter {name} is an object or JSON; let it be part of the body")
    if document.get("style", style) != style:
        raise ValueError(f"parameter {name} is of style {document['style']}; only {style} is read")


def _compile(schema: Any, schemas: Schemas) -> Schema | None:
    """None where reading the text has already checked everything the schema asks for."""
    if not isinstance(schema, dict) or not schema:
        return None
    plain = schema.keys() <= _KEYWORDS_OF_TYPE and isinstance(schema.get("type"), str)
    if plain and (schema["type"] != "array" or not _compile(schema.get("items", {}), schemas)):
        return None
    return schemas.of(schema)


def read_query(query_string: bytes) -> dict[str, list[str]]:
    """The texts of each name, in the order sent."""
    texts: dict[str, list[str]] = {}
    escaped = b"%" in query_string or b"+" in query_string
    for pair in query_string.decode("latin-1").split("&"):
        if not pair:
            continue
        name, _, text = pair.partition("=")
        if escaped:
            name, text = unquote_plus(name), unquote_plus(text)
        if name in texts:
            texts[name].append(text)
        else:
            texts[name] = [text]
    return texts
