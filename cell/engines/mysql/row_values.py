"""Values of rows in a binary log, as literals of SQL.

Each is digits, or hexadecimal with the character set of its column: nothing that a log says can be
more than a value.
"""

import math
import struct
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Final

NULL: Final = "NULL"
# As the log names types.
TINY, SHORT, LONG, FLOAT, DOUBLE, LONGLONG, INT24 = 1, 2, 3, 4, 5, 8, 9
DATE, YEAR, VARCHAR, BIT, TIMESTAMP2, DATETIME2, TIME2 = 10, 13, 15, 16, 17, 18, 19
DECIMAL, ENUM, SET, BLOB, VAR_STRING, STRING, GEOMETRY = 246, 247, 248, 252, 253, 254, 255
# How many bytes a table map has of a type, beside the type.
METADATA_BYTES: Final = {
    **dict.fromkeys((FLOAT, DOUBLE, TIMESTAMP2, DATETIME2, TIME2, BLOB, GEOMETRY), 1),
    **dict.fromkeys((VARCHAR, VAR_STRING, BIT, DECIMAL, STRING, ENUM, SET), 2),
    **dict.fromkeys((TINY, SHORT, LONG, LONGLONG, INT24, DATE, YEAR), 0),
}
INTEGER_BYTES: Final = {TINY: 1, SHORT: 2, INT24: 3, LONG: 4, LONGLONG: 8}
TEXTS: Final = frozenset({VARCHAR, VAR_STRING, BLOB, STRING, GEOMETRY})
# Types of columns by how the log has them.
_STRINGS: Final = frozenset({"char", "binary", "uuid", "inet6", "inet4"})
_VARYING: Final = frozenset({"varchar", "varbinary"})
_BLOBS: Final = frozenset(
    f"{size}{kind}" for size in ("tiny", "", "medium", "long") for kind in ("text", "blob")
)
_TYPES: Final = {
    TINY: frozenset({"tinyint"}),
    SHORT: frozenset({"smallint"}),
    INT24: frozenset({"mediumint"}),
    LONG: frozenset({"int"}),
    LONGLONG: frozenset({"bigint"}),
    FLOAT: frozenset({"float"}),
    DOUBLE: frozenset({"double"}),
    DECIMAL: frozenset({"decimal"}),
    YEAR: frozenset({"year"}),
    DATE: frozenset({"date"}),
    TIME2: frozenset({"time"}),
    DATETIME2: frozenset({"datetime"}),
    TIMESTAMP2: frozenset({"timestamp"}),
    BIT: frozenset({"bit"}),
    ENUM: frozenset({"enum"}),
    SET: frozenset({"set"}),
    STRING: _STRINGS,
    VARCHAR: _VARYING,
    VAR_STRING: _VARYING,
    BLOB: _BLOBS,
    GEOMETRY: frozenset(
        {
            *("geometry", "point", "linestring", "polygon", "multipoint", "multilinestring"),
            *("multipolygon", "geometrycollection"),
        }
    ),
}
# Of which the log leaves out zeros at the end.
_PADDED: Final = {"uuid": 16, "inet6": 16, "inet4": 4}
# Digits of a decimal are kept in groups of nine; how many bytes fewer digits take.
_GROUP_DIGITS, _GROUP_BYTES = 9, 4
_DIGIT_BYTES: Final = (0, 1, 1, 2, 2, 3, 3, 4, 4, 4)
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_ONE_BYTE_MAX = 255
_FRACTION_DIGITS_MAX, _DECIMAL_DIGITS_MAX = 6, 65


class MalformedEventError(Exception):
    """An event is not as servers write it; the text is for the owner."""

    def __init__(self, what: str = "an event cannot be read") -> None:
        super().__init__(what)


class EventReader:
    """Reads what an event has, and never beyond its end."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 0

    @property
    def left(self) -> int:
        return len(self._data) - self._at

    def take(self, count: int) -> bytes:
        if not 0 <= count <= self.left:
            raise MalformedEventError
        self._at += count
        return self._data[self._at - count : self._at]

    def number(self, size: int, *, signed: bool = False) -> int:
        return int.from_bytes(self.take(size), "little", signed=signed)

    def big(self, size: int) -> int:
        return int.from_bytes(self.take(size), "big")

    def count(self) -> int:
        """A number of one byte, or of as many as that byte says."""
        first = self.number(1)
        sizes = {0xFC: 2, 0xFD: 3, 0xFE: 8}
        if first in {0xFB, 0xFF}:
            raise MalformedEventError
        return self.number(sizes[first]) if first in sizes else first


@dataclass(frozen=True)
class LoggedType:
    """`detail` is what the table map has of it beside the type."""

    kind: int
    detail: int

    @classmethod
    def read(cls, kind: int, metadata: EventReader) -> "LoggedType":
        size = METADATA_BYTES.get(kind)
        if size is None:
            raise MalformedEventError(f"a column is of a type that is not followed (number {kind})")
        if kind not in {STRING, ENUM, SET}:
            return cls(kind, metadata.number(size))
        # Some bits of the length are beside the type.
        first, length = metadata.take(2)
        if first & 0x30 != 0x30:  # noqa: PLR2004 - the bits of a length that are not inverted
            length |= ((first & 0x30) ^ 0x30) << 4
            first |= 0x30
        return cls(first, length)


@dataclass(frozen=True)
class LoggedColumn:
    """Of a table that is written to. `charset` is None of what is no text."""

    name: str
    data_type: str
    is_unsigned: bool
    charset: str | None
    octets: int
    is_generated: bool
    is_key: bool

    def fits(self, logged: LoggedType) -> bool:
        return self.data_type in _TYPES.get(logged.kind, ())


def literal(column: LoggedColumn, logged: LoggedType, data: EventReader) -> str:
    """Raises MalformedEventError."""
    kind, detail = logged.kind, logged.detail
    if kind in INTEGER_BYTES:
        return str(data.number(INTEGER_BYTES[kind], signed=not column.is_unsigned))
    if kind in TEXTS:
        return _text(column, _bytes(kind, detail, data))
    return _READ[kind](detail, data)


def passed_over(logged: LoggedType, data: EventReader) -> None:
    """A value of a column that the server made for itself."""
    if logged.kind != LONGLONG:
        raise MalformedEventError("a table has other columns than it had; it was changed")
    data.take(8)


def _bytes(kind: int, detail: int, data: EventReader) -> bytes:
    if kind in {BLOB, GEOMETRY}:
        if not 1 <= detail <= 4:  # noqa: PLR2004 - the bytes of a length
            raise MalformedEventError
        return data.take(data.number(detail))
    return data.take(data.number(1 if detail <= _ONE_BYTE_MAX else 2))


def _text(column: LoggedColumn, value: bytes) -> str:
    if column.data_type == "binary":
        value = value.ljust(column.octets, b"\0")
    value = value.ljust(_PADDED.get(column.data_type, 0), b"\0")
    introducer = f"_{column.charset} " if column.charset else ""
    return f"{introducer}x'{value.hex()}'"


def _float(size: int, data: EventReader) -> str:
    if size not in {4, 8}:
        raise MalformedEventError
    (value,) = struct.unpack("<f" if size == 4 else "<d", data.take(size))  # noqa: PLR2004
    if not math.isfinite(value):
        raise MalformedEventError
    # With an exponent it is no decimal, which would be rounded.
    return f"{value:.17e}"


def _decimal(detail: int, data: EventReader) -> str:
    digits, scale = detail & 0xFF, detail >> 8
    if not scale <= digits <= _DECIMAL_DIGITS_MAX:
        raise MalformedEventError
    whole = digits - scale
    before = [_DIGIT_BYTES[whole % _GROUP_DIGITS], *[_GROUP_BYTES] * (whole // _GROUP_DIGITS)]
    after = [*[_GROUP_BYTES] * (scale // _GROUP_DIGITS), _DIGIT_BYTES[scale % _GROUP_DIGITS]]
    content = bytearray(data.take(sum(before) + sum(after)))
    if not content:
        raise MalformedEventError
    is_negative = not content[0] & 0x80
    content[0] ^= 0x80
    if is_negative:
        content = bytearray(each ^ 0xFF for each in content)
    reader = EventReader(bytes(content))
    shown = "".join(f"{reader.big(size):0{_GROUP_DIGITS}}" for size in before if size)
    fraction = "".join(f"{reader.big(size):0{_GROUP_DIGITS}}" for size in after[:-1])
    if after[-1]:
        fraction += f"{reader.big(after[-1]):0{scale % _GROUP_DIGITS}}"
    return f"{'-' if is_negative else ''}{shown or '0'}{'.' if fraction else ''}{fraction}"


def _year(_: int, data: EventReader) -> str:
    value = data.number(1)
    return str(1900 + value if value else 0)


def _date(_: int, data: EventReader) -> str:
    value = data.number(3)
    return f"'{value >> 9:04}-{value >> 5 & 15:02}-{value & 31:02}'"


def _fraction(digits: int, data: EventReader) -> str:
    """With its point, of a moment."""
    if digits > _FRACTION_DIGITS_MAX:
        raise MalformedEventError
    size = (digits + 1) // 2
    return f".{data.big(size) * 10 ** (6 - 2 * size):06}" if size else ""


def _datetime(digits: int, data: EventReader) -> str:
    value = data.big(5) - 0x8000000000
    if value < 0:
        raise MalformedEventError
    days, seconds = value >> 17, value & 0x1FFFF
    date = f"{(days >> 5) // 13:04}-{(days >> 5) % 13:02}-{days & 31:02}"
    return f"'{date} {_clock(seconds)}{_fraction(digits, data)}'"


def _clock(value: int) -> str:
    return f"{value >> 12:02}:{value >> 6 & 63:02}:{value & 63:02}"


def _timestamp(digits: int, data: EventReader) -> str:
    value = data.big(4)
    fraction = _fraction(digits, data)
    if not value:
        return f"'0000-00-00 00:00:00{fraction}'"
    moment = _EPOCH + timedelta(seconds=value)
    return f"'{moment:%Y-%m-%d %H:%M:%S}{fraction}'"


def _time(digits: int, data: EventReader) -> str:
    if digits > _FRACTION_DIGITS_MAX:
        raise MalformedEventError
    size = 3 + (digits + 1) // 2
    # As one number, whose half is zero; its last bytes are the fraction.
    value = data.big(size) - (1 << (8 * size - 1))
    shown, fraction = divmod(abs(value), 1 << (8 * (size - 3)))
    text = f".{fraction * 10 ** (6 - 2 * (size - 3)):06}" if size > 3 else ""  # noqa: PLR2004
    return f"'{'-' if value < 0 else ''}{_clock(shown)}{text}'"


def _bit(detail: int, data: EventReader) -> str:
    bits, size = detail & 0xFF, detail >> 8
    return str(data.big(size + bool(bits)))


def _listed(size: int, data: EventReader) -> str:
    if not 1 <= size <= 8:  # noqa: PLR2004 - the bytes of a number
        raise MalformedEventError
    return str(data.number(size))


_READ: Final[dict[int, Callable[[int, EventReader], str]]] = {
    FLOAT: _float,
    DOUBLE: _float,
    DECIMAL: _decimal,
    YEAR: _year,
    DATE: _date,
    DATETIME2: _datetime,
    TIME2: _time,
    TIMESTAMP2: _timestamp,
    BIT: _bit,
    ENUM: _listed,
    SET: _listed,
}
