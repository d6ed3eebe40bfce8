"""Owns the words for each way of breaking a schema. No word of the sender's value is repeated."""

from collections.abc import Callable
from typing import Any

import jsonschema_rs
import orjson

_ARTICLES = {
    "array": "an array",
    "boolean": "a boolean",
    "integer": "an integer",
    "null": "null",
    "number": "a number",
    "object": "an object",
    "string": "a string",
}
_FORMATS = {
    "date": "a date such as 2026-01-31",
    "date-time": "a time such as 2026-01-31T12:00:00Z",
    "email": "an e-mail address",
    "hostname": "a host name",
    "ipv4": "an IPv4 address",
    "ipv6": "an IPv6 address",
    "uri": "an absolute URI",
    "uuid": "a UUID",
}
_MAX_OPTIONS = 20

Facts = dict[str, Any]


def _json(value: Any) -> str:
    return orjson.dumps(value, default=str).decode()


def _one_of(words: list[str]) -> str:
    return words[0] if len(words) == 1 else ", ".join(words[:-1]) + " or " + words[-1]


def _counted(limit: int, noun: str) -> str:
    return f"{limit} {noun}" if limit == 1 else f"{limit} {noun}s"


def _type(facts: Facts) -> str:
    return "must be " + _one_of([_ARTICLES.get(name, name) for name in sorted(facts["types"])])


def _enum(facts: Facts) -> str:
    options = [_json(option) for option in facts["options"]]
    if len(options) > _MAX_OPTIONS:
        return f"must be one of {len(options)} known values"
    return "must be " + _one_of(options)


_WORDS: dict[str, Callable[[Facts], str]] = {
    "type": _type,
    "enum": _enum,
    "const": lambda f: f"must be {_json(f['expected_value'])}",
    "minLength": lambda f: f"must have at least {_counted(f['limit'], 'character')}",
    "maxLength": lambda f: f"must have at most {_counted(f['limit'], 'character')}",
    "minItems": lambda f: f"must have at least {_counted(f['limit'], 'item')}",
    "maxItems": lambda f: f"must have at most {_counted(f['limit'], 'item')}",
    "minProperties": lambda f: f"must have at least {_counted(f['limit'], 'member')}",
    "maxProperties": lambda f: f"must have at most {_counted(f['limit'], 'member')}",
    "minimum": lambda f: f"must be at least {f['limit']}",
    "maximum": lambda f: f"must be at most {f['limit']}",
    "exclusiveMinimum": lambda f: f"must be more than {f['limit']}",
    "exclusiveMaximum": lambda f: f"must be less than {f['limit']}",
    "multipleOf": lambda f: f"must be a multiple of {f['multiple_of']}",
    "pattern": lambda f: f"must match the pattern {f['pattern']}",
    "format": lambda f: f"must be {_FORMATS.get(f['format'], 'a valid ' + f['format'])}",
    "uniqueItems": lambda _: "must not hold the same item twice",
    "contains": lambda _: "must hold an item of the described kind",
    "not": lambda _: "is of a form that is excluded",
    "anyOf": lambda _: "matches none of the allowed forms",
    "oneOf": lambda _: "matches none of the allowed forms",
    "propertyNames": lambda _: "has a member with a name that is not allowed",
    "additionalItems": lambda _: "has more items than are allowed",
    "unevaluatedItems": lambda _: "has items that are not allowed",
    "falseSchema": lambda _: "is not allowed",
    "contentEncoding": lambda f: f"must be encoded as {f['content_encoding']}",
    "contentMediaType": lambda f: f"must hold {f['content_media_type']}",
}


def message(kind: jsonschema_rs.ValidationErrorKind) -> str:
    if isinstance(kind, jsonschema_rs.ValidationErrorKind.OneOfMultipleValid):
        return "matches more than one of the allowed forms"
    words = _WORDS.get(kind.name)
    return words(kind.as_dict()) if words else f"breaks the rule {kind.name}"
