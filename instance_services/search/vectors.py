"""Owns the vectors of documents: what `_vectors` may say, and how it is kept and shown."""

import math
from array import array
from collections.abc import Iterator, Mapping
from typing import Any, Final

from instance_services.search.errors import ApiError

FIELD: Final = "_vectors"


def of_document(
    document: Mapping[str, Any], embedders: Mapping[str, Any]
) -> Iterator[tuple[str, bytes]]:
    """For each embedder of the settings, its vectors, one unit long, as 32-bit floats.

    Raises ApiError. What other embedders would have is kept in the document, and nothing else.
    """
    given = document.get(FIELD)
    if given is not None and not isinstance(given, dict):
        raise ApiError("invalid_vectors_type", "`_vectors` is an object of embedders")
    for name, settings in embedders.items():
        if name not in (given or {}):
            raise ApiError(
                "vector_embedding_error",
                f"a document has no `_vectors.{name}`, and the embedder makes none by itself; null "
                "says that it shall have none",
            )
        for each in embeddings(name, (given or {})[name]):
            check_dimensions(each, settings)
            yield name, packed(each)


def embeddings(name: str, given: Any) -> list[list[float]]:
    """Of what a document says of an embedder: a vector, several, or an object with them."""
    if isinstance(given, dict):
        given = given.get("embeddings")
    if given is None or given == []:
        return []
    found = [given] if isinstance(given, list) and not isinstance(given[0], list) else given
    if not isinstance(found, list) or not all(map(is_vector, found)):
        raise ApiError(
            "invalid_vectors_type",
            f"`_vectors.{name}` is an array of numbers, or of such arrays, or null",
        )
    return found


def is_vector(given: Any) -> bool:
    return isinstance(given, list) and all(
        isinstance(each, int | float) and not isinstance(each, bool) for each in given
    )


def check_dimensions(vector: list[float], settings: Mapping[str, Any]) -> None:
    """Raises ApiError where a vector is none of the embedder's."""
    if len(vector) != settings["dimensions"]:
        raise ApiError(
            "invalid_vector_dimensions",
            f"the vector has {len(vector)} dimensions, and the embedder {settings['dimensions']}",
        )


def packed(vector: list[float]) -> bytes:
    """One unit long, so that a product with another one is the cosine; zeros stay as they are."""
    length = math.hypot(*vector)
    if length in (0.0, math.inf):
        return array("f", [0.0] * len(vector)).tobytes()
    return array("f", [each / length for each in vector]).tobytes()


def shown(
    document: dict[str, Any], settings: Mapping[str, Any], *, is_wanted: bool
) -> dict[str, Any]:
    """The document with its vectors as they are told, or without them."""
    if FIELD not in document:
        return document | {FIELD: {}} if is_wanted else document
    rest = {name: value for name, value in document.items() if name != FIELD}
    if not is_wanted:
        return rest
    given = document[FIELD] or {}
    told = {
        name: {"embeddings": embeddings(name, value), "regenerate": False}
        if name in settings["embedders"]
        else value
        for name, value in given.items()
    }
    return rest | {FIELD: told}


def merged(before: dict[str, Any], change: dict[str, Any]) -> dict[str, Any]:
    """A document after a partial change: vectors of embedders that it does not name stay."""
    both = (before.get(FIELD), change.get(FIELD))
    result = before | change
    if isinstance(both[0], dict) and isinstance(both[1], dict):
        result[FIELD] = both[0] | both[1]
    return result
