"""Owns the value mapping: how a value of each SQL type is written in JSON.

A plain column goes from the engine to JSON untouched. Others are rendered by the engine itself, in
the expression that `expression` gives, because Python's types cannot hold them (an infinite date, a
nanosecond, a month of an interval) or are slow to make (Decimal). What JSON cannot say, or only
within another value, is converted by the function that `converter` gives.
"""

import base64
import contextlib
import datetime as dt
import decimal
import math
import uuid
from collections.abc import Callable, Iterable
from typing import Any

import orjson

from instance_services.duckdb.catalog import quoted

Convert = Callable[[Any], Any]

INT64_MIN, INT64_MAX = -(2**63), 2**63 - 1

# Rendered as the engine's own text: casting the string back gives the same value.
_TEXTS = frozenset({"decimal", "date", "time", "time_ns", "interval", "uuid", "geometry", "bignum"})
_STAMPS = {
    "timestamp": "TIMESTAMP",
    "timestamp_s": "TIMESTAMP_S",
    "timestamp_ms": "TIMESTAMP_MS",
    "timestamp_ns": "TIMESTAMP_NS",
}
_ZONED_STAMP = "timestamp with time zone"
_ZONED_TIME = "time with time zone"
_TEXTUAL = _TEXTS | _STAMPS.keys() | {_ZONED_STAMP, _ZONED_TIME}
_FLOATS = frozenset({"float", "double"})
_HUGE = frozenset({"hugeint", "uhugeint"})
_NESTED = frozenset({"list", "array", "struct", "map", "union", "variant"})


class _NotCastable(Exception):  # noqa: N818 - a way out of a recursion and not an error
    """The type has no name that can stand in a CAST (a struct without member names)."""


def expression(column: int, kind: Any) -> str | None:
    """The SQL that renders column `#n` (from 1) of type `kind`; None where it is used as it is."""
    text = f"CAST(#{column} AS VARCHAR)"
    if kind.id in _TEXTS:
        return text
    if kind.id in _STAMPS or kind.id == _ZONED_STAMP:
        return _stamp_expression(column, kind.id, text)
    if kind.id == _ZONED_TIME:
        return rf"system.main.regexp_replace({text}, '([+-]\d\d)$', '\1:00')"
    if kind.id == "blob":
        return f"system.main.base64(#{column})"
    return _nested_expression(column, kind)


def _stamp_expression(column: int, name: str, text: str) -> str:
    # The infinities and years before 1 stay in the engine's words: `0044-03-15 (BC) 10:00:00`.
    stamp = f"system.main.replace({text}, ' ', 'T')"
    if name == "timestamp_ns":
        return stamp
    if name == _ZONED_STAMP:
        first = "TIMESTAMPTZ '0001-01-01 00:00:00+00'"
        ordinary = f"system.main.isfinite(#{column}) AND #{column} >= {first}"
        whole = f"system.main.concat({stamp}, ':00')"
        return f"CASE WHEN {ordinary} THEN {whole} ELSE {text} END"
    return f"CASE WHEN #{column} >= {_STAMPS[name]} '0001-01-01' THEN {stamp} ELSE {text} END"


def _nested_expression(column: int, kind: Any) -> str | None:
    if kind.id in _NESTED and _holds(kind, _TEXTUAL):
        with contextlib.suppress(_NotCastable):
            return f"CAST(#{column} AS {_target(kind)})"
    return None


def is_float(kind: Any) -> bool:
    return kind.id in _FLOATS


def is_nested(kind: Any) -> bool:
    return kind.id in _NESTED


def converter(kind: Any) -> Convert | None:
    """The function for a non-null value of `kind`; None where the value is JSON as it is.

    It takes values as Python has them and as the engine rendered them.
    """
    return None if _plain(kind) else _CONVERTERS[kind.id](kind)


def _plain(kind: Any) -> bool:
    if kind.id in ("list", "array", "struct"):
        return all(_plain(child) for _, child in _children(kind))
    return kind.id not in _CONVERTERS


def finite(value: float) -> float | str:
    """JSON has no words for these; the strings are what JavaScript and the engine call them."""
    if math.isfinite(value):
        return value
    if math.isnan(value):
        return "NaN"
    return "Infinity" if value > 0 else "-Infinity"


def _children(kind: Any) -> list[tuple[str, Any]]:
    """The types inside a type, by name."""
    if kind.id not in _NESTED or kind.id == "variant":
        return []
    inside = [(name, child) for name, child in kind.children if name != "size"]
    # The first member of a union is its tag.
    return inside[1:] if kind.id == "union" else inside


def _holds(kind: Any, names: Iterable[str]) -> bool:
    return kind.id in names or any(_holds(child, names) for _, child in _children(kind))


def _target(kind: Any) -> str:
    """The type to cast to: as `kind`, with text in the place of what is rendered as text."""
    # JSON is a VARCHAR, and a name that somebody else's type may have.
    if kind.id in _TEXTUAL or kind.id in ("enum", "varchar"):
        return "VARCHAR"
    if kind.id not in _NESTED or kind.id == "variant":
        return str(kind)
    inside = _children(kind)
    if kind.id == "list":
        return f"{_target(inside[0][1])}[]"
    if kind.id == "array":
        return f"{_target(inside[0][1])}[{dict(kind.children)['size']}]"
    if kind.id == "map":
        return f"MAP({_target(inside[0][1])}, {_target(inside[1][1])})"
    if not all(name for name, _ in inside):
        raise _NotCastable
    members = ", ".join(f"{quoted(name)} {_target(child)}" for name, child in inside)
    return f"{kind.id.upper()}({members})"


# What follows meets values inside nested ones: text where the engine rendered it, Python's own
# objects where it could not (a struct without names, a union, a variant).


def _integer(value: int) -> int | str:
    return value if INT64_MIN <= value <= INT64_MAX else str(value)


def _stamp(value: Any) -> str:
    text = value if isinstance(value, str) else str(value.isoformat())
    return text if "(" in text else text.replace(" ", "T", 1)


def _zoned(value: Any) -> str:
    text = _stamp(value)
    return f"{text}:00" if text[-3:-2] in ("+", "-") and "(" not in text else text


def _decimal(value: Any) -> str:
    return value if isinstance(value, str) else format(value, "f")


def _date(value: Any) -> str:
    return value if isinstance(value, str) else str(value.isoformat())


def _duration(value: Any) -> str:
    if isinstance(value, str):
        return value
    clock = dt.timedelta(seconds=value.seconds, microseconds=value.microseconds)
    return f"{value.days} days {clock}"


def _blob(value: bytes) -> str:
    return base64.b64encode(value).decode("ascii")


def _any(value: Any) -> Any:
    """A value whose type is known only from the value: of a union or a variant."""
    convert = _BY_CLASS.get(type(value))
    return convert(value) if convert else value


def _object(value: dict[Any, Any]) -> dict[str, Any]:
    return {_key(_any(key)): _any(member) for key, member in value.items()}


def _key(value: Any) -> str:
    return value if isinstance(value, str) else orjson.dumps(value).decode()


def _itself(value: Any) -> Any:
    return value


def _nullable(kind: Any) -> Convert:
    convert = converter(kind) or _itself
    return lambda value: None if value is None else convert(value)


def _sequence(kind: Any) -> Convert:
    convert = _nullable(_children(kind)[0][1])
    return lambda value: [convert(item) for item in value]


def _structure(kind: Any) -> Convert:
    inside = [(name, _nullable(child)) for name, child in _children(kind)]

    def convert(value: Any) -> Any:
        if isinstance(value, dict):
            return {name: member(value[name]) for name, member in inside}
        return [member(item) for (_, member), item in zip(inside, value, strict=True)]

    return convert


def _mapping(kind: Any) -> Convert:
    (_, key_kind), (_, value_kind) = _children(kind)
    key, member = _nullable(key_kind), _nullable(value_kind)
    nested_keys = key_kind.id in _NESTED

    def convert(value: dict[Any, Any]) -> dict[str, Any]:
        pairs: Iterable[tuple[Any, Any]] = value.items()
        # Keys that Python cannot hash come as two lists.
        if nested_keys and value and isinstance(value.get("key"), list):
            pairs = zip(value["key"], value["value"], strict=True)
        return {_key(key(name)): member(item) for name, item in pairs}

    return convert


def _always(convert: Convert) -> Callable[[Any], Convert]:
    return lambda _kind: convert


_CONVERTERS: dict[str, Callable[[Any], Convert]] = {
    **dict.fromkeys(_FLOATS, _always(finite)),
    **dict.fromkeys(_HUGE, _always(_integer)),
    **dict.fromkeys(_STAMPS, _always(_stamp)),
    _ZONED_STAMP: _always(_zoned),
    _ZONED_TIME: _always(_zoned),
    "decimal": _always(_decimal),
    "date": _always(_date),
    "time": _always(_date),
    "time_ns": _always(_date),
    "interval": _always(_duration),
    "uuid": _always(str),
    "geometry": _always(_any),
    "blob": _always(_blob),
    "union": _always(_any),
    "variant": _always(_any),
    "list": _sequence,
    "array": _sequence,
    "struct": _structure,
    "map": _mapping,
}

_BY_CLASS: dict[type, Convert] = {
    float: finite,
    int: lambda value: value if INT64_MIN <= value < 2**64 else str(value),
    bytes: _blob,
    dict: _object,
    list: lambda value: [_any(item) for item in value],
    tuple: lambda value: [_any(item) for item in value],
    decimal.Decimal: _decimal,
    uuid.UUID: str,
    dt.date: _date,
    dt.time: _date,
    dt.datetime: _stamp,
    dt.timedelta: _duration,
}


def fallback(value: Any) -> Any:
    """What orjson asks for when it meets a class of which it knows nothing."""
    convert = _BY_CLASS.get(type(value))
    return convert(value) if convert else str(value)
