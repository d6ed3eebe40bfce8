"""Owns the documents that requests bring: JSON, NDJSON and CSV, and what a document may be."""

import csv
import io
from collections.abc import Iterator
from typing import Any, Final

import orjson

from instance_services.search.errors import ApiError
from specserver.json_sizes import why_too_deep

MEDIA_TYPES: Final = ("application/json", "application/x-ndjson", "text/csv")
FIELDS_MAX: Final = 65_535


def documents(raw: bytes, content_type: str | None, delimiter: str | None) -> list[dict[str, Any]]:
    """What a body says. Raises ApiError."""
    if content_type is None:
        raise ApiError(
            "missing_content_type",
            f"a Content-Type header is missing: one of {', '.join(MEDIA_TYPES)}",
        )
    media_type = content_type.partition(";")[0].strip().lower()
    if media_type not in MEDIA_TYPES:
        raise ApiError(
            "invalid_content_type",
            f"the Content-Type `{media_type[:100]}` is none of {', '.join(MEDIA_TYPES)}",
        )
    if delimiter is not None and media_type != "text/csv":
        raise ApiError("bad_request", "csvDelimiter is for the Content-Type text/csv only")
    if not raw.strip():
        raise ApiError("missing_payload", f"a {media_type} payload is missing")
    if media_type == "text/csv":
        return list(_rows(raw, delimiter or ","))
    found = _json(raw) if media_type == "application/json" else list(_lines(raw))
    for number, each in enumerate(found, 1):
        if not isinstance(each, dict):
            raise _malformed(f"document {number} is not an object")
        if len(each) > FIELDS_MAX:
            raise _malformed(f"document {number} has more than {FIELDS_MAX:,} fields")
    return found


def _json(raw: bytes) -> list[Any]:
    value = _parsed(raw, "the JSON payload")
    return value if isinstance(value, list) else [value]


def _lines(raw: bytes) -> Iterator[Any]:
    for number, line in enumerate(raw.splitlines(), 1):
        if line.strip():
            yield _parsed(line, f"line {number} of the NDJSON payload")


def _parsed(raw: bytes, what: str) -> Any:
    try:
        value = orjson.loads(raw)
    except orjson.JSONDecodeError as error:
        raise _malformed(f"{what} is malformed: {error}") from None
    if reason := why_too_deep(raw, value):
        raise _malformed(f"{what} {reason}")
    return value


def _rows(raw: bytes, delimiter: str) -> Iterator[dict[str, Any]]:
    if len(delimiter) != 1 or not delimiter.isascii():
        raise ApiError("invalid_document_csv_delimiter", "csvDelimiter must be one ASCII character")
    try:
        text = raw.decode("utf-8-sig")
        rows = csv.reader(io.StringIO(text, newline=""), delimiter=delimiter, strict=True)
        columns = [_column(each) for each in next(rows, [])]
        for number, row in enumerate(rows, 2):
            if not row:
                continue
            if len(row) != len(columns):
                raise _malformed(
                    f"row {number} of the CSV payload has {len(row)} values, and the first row "
                    f"{len(columns)}"
                )
            yield {
                name: _value(kind, value, number)
                for (name, kind), value in zip(columns, row, strict=True)
            }
    except (UnicodeDecodeError, csv.Error, TypeError) as error:
        raise _malformed(f"the CSV payload is malformed: {error}") from None


def _column(title: str) -> tuple[str, str]:
    """`price:number` is the column `price`, whose values are numbers."""
    name, colon, kind = title.rpartition(":")
    if colon and kind in {"number", "boolean", "string"}:
        return name, kind
    return title, "string"


def _value(kind: str, text: str, number: int) -> Any:
    if not text:
        return None
    if kind == "string":
        return text
    try:
        return {"true": True, "false": False}[text] if kind == "boolean" else _as_number(text)
    except (ValueError, LookupError):
        raise _malformed(
            f"row {number} of the CSV payload has `{text[:100]}` in a column of {kind} values"
        ) from None


def _as_number(text: str) -> int | float:
    value = orjson.loads(text)
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise ValueError(text)  # noqa: TRY004 - as where it is no JSON
    return value


def _malformed(message: str) -> ApiError:
    return ApiError("malformed_payload", message)
