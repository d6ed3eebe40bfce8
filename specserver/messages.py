"""Owns the words for each way of breaking a schema. No word of the sender's value is repeated."""

from collections.abc import Callable, Mapping
from difflib import SequenceMatcher
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
    "email": "a valid email address",
    "hostname": "a valid host name",
    "ipv4": "a valid IPv4 address",
    "ipv6": "a valid IPv6 address",
    "uri": "an absolute URI",
    "uuid": "a UUID",
}
_MAX_OPTIONS = 20
# Nobody means one of our options by what is longer, and comparing takes its time.
_COMPARED_LENGTH_MAX = 40

Facts = dict[str, Any]


def _json(value: Any) -> str:
    return orjson.dumps(value, default=str).decode()


def _one_of(words: list[str]) -> str:
    return words[0] if len(words) == 1 else ", ".join(words[:-1]) + " or " + words[-1]


def _counted(limit: int, noun: str) -> str:
    return f"{limit} {noun}" if limit == 1 else f"{limit} {noun}s"


def _type(facts: Facts) -> str:
    return "must be " + _one_of([_ARTICLES.get(name, name) for name in sorted(facts["types"])])


def _choice(options: list[Any], given: Any) -> str:
    """The options, those nearest to what was given first, and no word of that itself."""
    if isinstance(given, str) and len(given) <= _COMPARED_LENGTH_MAX:
        options = sorted(options, key=lambda option: -_likeness(given, option))
    shown = [_json(option) for option in options[:_MAX_OPTIONS]]
    left = len(options) - len(shown)
    if left:
        return f"must be one of {', '.join(shown)} and {left} more"
    return "must be " + _one_of(shown)


def _likeness(given: str, option: Any) -> float:
    return SequenceMatcher(None, given.casefold(), str(option).casefold()).ratio()


_WORDS: dict[str, Callable[[Facts], str]] = {
    "type": _type,
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
    "format": lambda f: f"must be {_FORMATS.get(f['format'], 'a valid ' + f['format'])}",
    "uniqueItems": lambda _: "must not contain the same item twice",
    "contains": lambda _: "must contain an item that matches the schema",
    "not": lambda _: "matches a form that is not allowed",
    "anyOf": lambda _: "matches none of the allowed forms",
    "oneOf": lambda _: "matches none of the allowed forms",
    "additionalItems": lambda _: "has more items than are allowed",
    "unevaluatedItems": lambda _: "has items that are not allowed",
    "falseSchema": lambda _: "is not allowed",
    "contentEncoding": lambda f: f"must be encoded as {f['content_encoding']}",
    "contentMediaType": lambda f: f"must contain {f['content_media_type']}",
}


def message(error: jsonschema_rs.ValidationError, allowed: Mapping[str, str]) -> str:
    """`allowed` says in words what a pattern lets in: a pattern itself tells few people that."""
    kind = error.kind
    if isinstance(kind, jsonschema_rs.ValidationErrorKind.OneOfMultipleValid):
        return "matches more than one of the allowed forms"
    facts = kind.as_dict()
    if kind.name == "pattern":
        words = allowed.get(facts["pattern"])
        return (
            f"must be {words}"
            if words
            else "does not have the required format; see the API document"
        )
    if kind.name == "propertyNames":
        return f"its name {message(facts['error'], allowed)}"
    if kind.name == "enum":
        return _choice(facts["options"], error.instance)
    words_for = _WORDS.get(kind.name)
    return words_for(facts) if words_for else "is not valid; see its schema in the API document"
