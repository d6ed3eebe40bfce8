"""Owns the ids of documents: which attribute has them, and what one may be."""

import re
from typing import Any, Final

import orjson

from instance_services.search.errors import ApiError

_KEY: Final = re.compile(r"[A-Za-z0-9_-]{1,511}")


def key_of(document: dict[str, Any], primary_key: str) -> str:
    """The text of a document's id. Raises ApiError."""
    if primary_key not in document:
        raise ApiError(
            "missing_document_id",
            f"a document has no `{primary_key}`, which is the primary key: "
            f"{orjson.dumps(document)[:200].decode(errors='replace')}",
        )
    value = document[primary_key]
    text = str(value) if isinstance(value, int) and not isinstance(value, bool) else value
    if not isinstance(text, str) or not _KEY.fullmatch(text):
        shown = orjson.dumps(value)[:200].decode(errors="replace")
        raise ApiError(
            "invalid_document_id",
            f"the document id {shown} is invalid: an id is an integer, or a string of 1 to 511 "
            "letters without accents, digits, hyphens and underscores",
        )
    return text


def primary_key_of(document: dict[str, Any]) -> str:
    """The one field whose name ends in `id`. Raises ApiError."""
    found = [name for name in document if name.lower().endswith("id")]
    if len(found) == 1:
        return found[0]
    if not found:
        raise ApiError(
            "index_primary_key_no_candidate_found",
            "no field of the first document ends in `id`; say which is the primary key with "
            "primaryKey",
        )
    raise ApiError(
        "index_primary_key_multiple_candidates_found",
        f"{len(found)} fields of the first document end in `id`: {', '.join(found)[:300]}; say "
        "which is the primary key with primaryKey",
    )
