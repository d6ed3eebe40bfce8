"""Owns random SQL values for the property tests: a literal, and the JSON it must come out as.

The expected JSON is written from the documented mapping, with nothing of the service's own code.
"""

import base64
import datetime as dt
import functools
import json
import struct
from dataclasses import dataclass
from typing import Any

from hypothesis import strategies as st

INT64 = (-(2**63), 2**63 - 1)
_INTEGERS = {
    "TINYINT": (-(2**7), 2**7 - 1),
    "SMALLINT": (-(2**15), 2**15 - 1),
    "INTEGER": (-(2**31), 2**31 - 1),
    "BIGINT": INT64,
    "UTINYINT": (0, 2**8 - 1),
    "USMALLINT": (0, 2**16 - 1),
    "UINTEGER": (0, 2**32 - 1),
    "UBIGINT": (0, 2**64 - 1),
}
_HUGE = {"HUGEINT": (-(2**127), 2**127 - 1), "UHUGEINT": (0, 2**128 - 1)}


@dataclass(frozen=True)
class Value:
    """`back` is SQL that makes the same value again from `?`, bound to `expected`."""

    kind: str
    literal: str
    expected: Any
    back: str | None


def quoted(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"


def _cast(kind: str, text: str, expected: Any) -> Value:
    return Value(kind, f"CAST({quoted(text)} AS {kind})", expected, f"CAST(? AS {kind})")


def _integer(kind: str, value: int) -> Value:
    beyond = kind in _HUGE and not INT64[0] <= value <= INT64[1]
    return _cast(kind, str(value), str(value) if beyond else value)


def _decimal(digits: int, scale: int) -> Value:
    sign, whole = "-" if digits < 0 else "", str(abs(digits)).rjust(scale + 1, "0")
    text = f"{sign}{whole[:-scale]}.{whole[-scale:]}" if scale else f"{sign}{whole}"
    return _cast(f"DECIMAL(38,{scale})", text, text)


def _double(value: float) -> Value:
    expected: Any = value
    if value != value:  # noqa: PLR0124 - only NaN is not itself
        expected = "NaN"
    elif value in (float("inf"), float("-inf")):
        expected = "Infinity" if value > 0 else "-Infinity"
    return _cast("DOUBLE", repr(value), expected)


def _float(bits: int) -> Value:
    value = struct.unpack("<f", struct.pack("<I", bits))[0]
    return Value("FLOAT", _double(value).literal + "::FLOAT", _double(value).expected, "?::FLOAT")


def _fraction(microseconds: int) -> str:
    return f".{microseconds:06}".rstrip("0") if microseconds else ""


def _stamp(moment: dt.datetime, kind: str) -> Value:
    digits = {"TIMESTAMP_S": 0, "TIMESTAMP_MS": 3}.get(kind, 6)
    kept = moment.microsecond - moment.microsecond % 10 ** (6 - digits)
    moment = moment.replace(microsecond=kept)
    text = moment.isoformat()[:19] + _fraction(kept)
    zone = "+00:00" if kind == "TIMESTAMPTZ" else ""
    return _cast(kind, text.replace("T", " ") + zone[:3], text + zone)


def _nanoseconds(moment: dt.datetime, nanoseconds: int) -> Value:
    text = moment.isoformat()[:19] + (f".{nanoseconds:09}".rstrip("0") if nanoseconds else "")
    return _cast("TIMESTAMP_NS", text.replace("T", " "), text)


def _interval(months: int, days: int, seconds: int) -> Value:
    literal = f"to_months({months}) + to_days({days}) + to_seconds({seconds})"
    words = []
    years, rest = int(months / 12), months - int(months / 12) * 12
    for count, unit in ((years, "year"), (rest, "month"), (days, "day")):
        if count:
            words.append(f"{count} {unit}{'' if count in (1, -1) else 's'}")
    if seconds or not words:
        clock = abs(seconds)
        sign = "-" if seconds < 0 else ""
        words.append(f"{sign}{clock // 3600:02}:{clock // 60 % 60:02}:{clock % 60:02}")
    return Value("INTERVAL", literal, " ".join(words), "CAST(? AS INTERVAL)")


def _blob(value: bytes) -> Value:
    escaped = "".join(f"\\x{byte:02X}" for byte in value)
    encoded = base64.b64encode(value).decode()
    return Value("BLOB", f"'{escaped}'::BLOB", encoded, "from_base64(?)")


_SPECIAL = [
    _cast("DATE", "infinity", "infinity"),
    _cast("DATE", "-infinity", "-infinity"),
    _cast("DATE", "0044-03-15 (BC)", "0044-03-15 (BC)"),
    _cast("DATE", "5881580-07-10", "5881580-07-10"),
    _cast("TIMESTAMP", "infinity", "infinity"),
    _cast("TIMESTAMP", "-infinity", "-infinity"),
    _cast("TIMESTAMP", "0044-03-15 (BC) 10:00:00", "0044-03-15 (BC) 10:00:00"),
    _cast("TIMESTAMP", "12345-01-02 03:04:05", "12345-01-02T03:04:05"),
    _cast("TIMESTAMPTZ", "infinity", "infinity"),
    _cast("TIMESTAMPTZ", "12345-01-02 03:04:05+00", "12345-01-02T03:04:05+00:00"),
    _cast("TIME", "24:00:00", "24:00:00"),
    _cast("TIMETZ", "12:00:00+02", "12:00:00+02:00"),
    _cast("TIMETZ", "12:00:00-02:30", "12:00:00-02:30"),
    _cast("BIT", "010111", "010111"),
    _cast("BIGNUM", "1" + "0" * 60, "1" + "0" * 60),
    _cast("JSON", '{"a": [1, null]}', '{"a": [1, null]}'),
    _cast("ENUM('small', 'large')", "large", "large"),
]

_moments = st.datetimes(dt.datetime(1, 1, 1), dt.datetime(9999, 12, 31))  # noqa: DTZ001 - naive, as SQL's
_dates = st.dates(dt.date(1, 1, 1), dt.date(9999, 12, 31))
_texts = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=20)
_small = st.integers(-(10**5), 10**5)

leaves: st.SearchStrategy[Value] = st.one_of(
    st.sampled_from(_SPECIAL),
    st.booleans().map(lambda b: _cast("BOOLEAN", str(b).lower(), b)),
    _texts.map(lambda text: _cast("VARCHAR", text, text)),
    st.uuids().map(lambda u: _cast("UUID", str(u), str(u))),
    *(
        st.integers(*bounds).map(functools.partial(_integer, kind))
        for kind, bounds in (_INTEGERS | _HUGE).items()
    ),
    st.builds(_decimal, st.integers(-(10**38) + 1, 10**38 - 1), st.integers(0, 37)),
    st.floats().map(_double),
    st.integers(0, 2**32 - 1).map(_float),
    _dates.map(lambda date: _cast("DATE", date.isoformat(), date.isoformat())),
    st.times().map(
        lambda t: _cast("TIME", t.isoformat(), t.isoformat()[:8] + _fraction(t.microsecond))
    ),
    st.builds(
        _stamp,
        _moments,
        st.sampled_from(["TIMESTAMP", "TIMESTAMP_S", "TIMESTAMP_MS", "TIMESTAMPTZ"]),
    ),
    st.builds(
        _nanoseconds,
        st.datetimes(dt.datetime(1700, 1, 1), dt.datetime(2200, 1, 1)),  # noqa: DTZ001 - as above
        st.integers(0, 10**9 - 1),
    ),
    st.builds(_interval, _small, _small, _small),
    st.binary(max_size=12).map(_blob),
)


def _as_key(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, separators=(",", ":"))


def _list_of(value: Value, has_null: bool) -> Value:
    literal = f"[{value.literal}{', NULL' if has_null else ''}]"
    expected = [value.expected] + [None] * has_null
    return Value(f"{value.kind}[]", literal, expected, None)


def _array_of(value: Value) -> Value:
    return Value(f"{value.kind}[1]", f"array_value({value.literal})", [value.expected], None)


def _struct_of(first: Value, second: Value, name: str) -> Value:
    member = '"' + name.replace('"', '""') + '"'
    return Value(
        f"STRUCT(a {first.kind}, {member} {second.kind})",
        f"struct_pack(a := {first.literal}, {member} := {second.literal})",
        {"a": first.expected, name: second.expected},
        None,
    )


def _map_of(key: Value, value: Value) -> Value:
    return Value(
        f"MAP({key.kind}, {value.kind})",
        f"MAP([{key.literal}], [{value.literal}])",
        {_as_key(key.expected): value.expected},
        None,
    )


_names = st.text("bcdefgh \"'.é", min_size=1, max_size=6)
# A float's key would be compared as text, in which the two sides may differ in notation.
_keys = leaves.filter(lambda value: value.kind not in ("DOUBLE", "FLOAT"))


def _nest(inner: st.SearchStrategy[Value]) -> st.SearchStrategy[Value]:
    return st.one_of(
        st.builds(_list_of, inner, st.booleans()),
        st.builds(_array_of, inner),
        st.builds(_struct_of, inner, inner, _names),
        st.builds(_map_of, _keys, inner),
    )


values: st.SearchStrategy[Value] = st.recursive(leaves, _nest, max_leaves=5)
