"""Owns what a document is in the database: its words, and its values for filters and sorting."""

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Final, NamedTuple

import orjson

from instance_services.search import paths, texts, vectors

# The kinds of a value, as field_values has them.
NUMBER: Final = 0
STRING: Final = 1
NULL: Final = 2
EMPTY: Final = 3
PRESENT: Final = 4
PLACE: Final = 5
"""A point on the earth: `number` is its latitude, `text` its longitude."""
GEO: Final = "_geo"


class FieldValue(NamedTuple):
    path: str
    kind: int
    text: str | None
    number: float | None
    original: str | None


def attribute_words(
    document: dict[str, Any], tokenizer: texts.Tokenizer
) -> dict[str, list[texts.Word]]:
    """By path, the words of an attribute; items of an array are far from one another."""
    found: dict[str, list[texts.Word]] = {}
    for path, values in paths.fields(_searched(document)).items():
        words: list[texts.Word] = []
        for value in values:
            for text in paths.texts(value):
                first = words[-1].position + texts.GAP if words else 0
                words.extend(tokenizer.words(text, first))
        if words:
            found[path] = words
    return found


def _searched(document: dict[str, Any]) -> dict[str, Any]:
    """Without vectors, which are neither words nor values."""
    return {name: value for name, value in document.items() if name != vectors.FIELD}


def packed_words(document: dict[str, Any], tokenizer: texts.Tokenizer) -> bytes:
    """By path, words and their positions, in as little room as is read quickly."""
    return orjson.dumps(
        {
            path: [" ".join(word.text for word in words), [word.position for word in words]]
            for path, words in attribute_words(document, tokenizer).items()
        }
    )


def unpacked_words(packed: bytes) -> dict[str, tuple[list[str], list[int]]]:
    return {
        path: (text.split(" "), places) for path, (text, places) in orjson.loads(packed).items()
    }


def searched_words(packed: bytes, searchable: Sequence[str]) -> set[str]:
    found: set[str] = set()
    for path, (text, _) in orjson.loads(packed).items():
        if paths.rank(searchable, path) is not None:
            found.update(text.split(" "))
    return found


def field_values(document: dict[str, Any], patterns: Iterable[str]) -> Iterator[FieldValue]:
    """For each path that a pattern names. Texts are compared without case and accents."""
    wanted = list(patterns)
    if not wanted:
        return
    for path, values in paths.fields(_searched(document)).items():
        if paths.rank(wanted, path) is None:
            continue
        yield FieldValue(path, PRESENT, None, None, None)
        for value in values:
            yield from _values(path, value)
    if GEO in wanted:
        point = place_of(document)
        if point is not None:
            yield FieldValue(GEO, PLACE, repr(point[1]), point[0], None)


def plain_number(value: float) -> str:
    """As JSON has it: 5 and not 5.0."""
    return str(int(value)) if value.is_integer() and abs(value) < 2**53 else repr(value)


def place_of(document: dict[str, Any]) -> tuple[float, float] | None:
    """Latitude and longitude of `_geo`, where it is a point on the earth."""
    given = document.get(GEO)
    if not isinstance(given, dict):
        return None
    try:
        latitude, longitude = float(given["lat"]), float(given["lng"])
    except (LookupError, TypeError, ValueError):
        return None
    if not (-90 <= latitude <= 90 and -180 <= longitude <= 180):  # noqa: PLR2004 - degrees
        return None
    return latitude, longitude


def _values(path: str, value: Any) -> Iterator[FieldValue]:
    if value is None:
        yield FieldValue(path, NULL, None, None, None)
    elif value is paths.EMPTY:
        yield FieldValue(path, EMPTY, None, None, None)
    elif isinstance(value, bool | str):
        text = value if isinstance(value, str) else str(value).lower()
        yield FieldValue(path, STRING, texts.normalized(text), None, text)
    else:
        yield FieldValue(path, NUMBER, plain_number(float(value)), float(value), None)
