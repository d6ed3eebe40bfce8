"""Owns what the columns of a file are: found in all of its rows, not in a sample of them."""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

import duckdb

from instance_services.table_files import kinds
from instance_services.table_files.classes import CLASSES, TEXT_CLASS, Digits, class_of, kind_of
from instance_services.table_files.kinds import FoundColumn
from instance_services.table_files.reading import TableFile, UnreadableTableError, rows

# So many columns are looked at in one reading of a file.
COLUMNS_AT_ONCE: Final = 25
# What an engine's type is for a Parquet file; those that are not here become text, or JSON.
_NATIVE: Final = {
    "BOOLEAN": kinds.BOOLEAN,
    **dict.fromkeys(
        ("TINYINT", "SMALLINT", "INTEGER", "BIGINT", "UTINYINT", "USMALLINT", "UINTEGER"),
        kinds.BIGINT,
    ),
    **dict.fromkeys(("UBIGINT", "HUGEINT", "UHUGEINT"), kinds.DECIMAL),
    "FLOAT": kinds.REAL,
    "DOUBLE": kinds.DOUBLE,
    "DATE": kinds.DATE,
    **dict.fromkeys(("TIMESTAMP", "TIMESTAMP_S", "TIMESTAMP_MS", "TIMESTAMP_NS"), kinds.TIMESTAMP),
    "TIMESTAMP WITH TIME ZONE": kinds.TIMESTAMPTZ,
    "TIME": kinds.TIME,
    "UUID": kinds.UUID,
    "JSON": kinds.JSON,
    "BLOB": kinds.BLOB,
    "VARCHAR": kinds.TEXT,
}
_DATED: Final = frozenset({kinds.DATE, kinds.TIMESTAMP, kinds.TIMESTAMPTZ})
_FLOATING: Final = frozenset({kinds.REAL, kinds.DOUBLE})
_TEXTS: Final = frozenset({kinds.TEXT, kinds.JSON})
_NUMBERS: Final = frozenset({kinds.BIGINT, kinds.DECIMAL, kinds.DOUBLE})
_DECIMAL: Final = re.compile(r"DECIMAL\((\d+),(\d+)\)")
_NESTED: Final = re.compile(r"(\[\d*\]|^(STRUCT|MAP|UNION|VARIANT)\b.*)$", re.DOTALL)
_WORDS: Final = {
    **{kind: f"{kind}s" for kind in kinds.KINDS},
    kinds.BIGINT: "integers",
    kinds.JSON: "JSON",
    kinds.TEXT: "other text",
    kinds.UUID: "UUIDs",
    kinds.TIMESTAMPTZ: "timestamps with a zone",
}


@dataclass(frozen=True)
class Oddity:
    """What is to be told of a column, by its number, or of the whole file."""

    severity: str
    code: str
    column: int | None
    message: str
    remedy: str


@dataclass(frozen=True)
class FoundColumns:
    rows: int
    columns: tuple[FoundColumn, ...]
    oddities: tuple[Oddity, ...]


def find(connection: duckdb.DuckDBPyConnection, file: TableFile) -> FoundColumns:
    """Raises UnreadableTableError."""
    made: list[FoundColumn] = []
    oddities: list[Oddity] = []
    counted: set[int] = set()
    look = _of_csv if file.form == "csv" else _of_parquet
    for first in range(0, len(file.names), COLUMNS_AT_ONCE):
        numbers = range(first, min(first + COLUMNS_AT_ONCE, len(file.names)))
        count, found, odd = look(connection, file, numbers)
        counted.add(count)
        made += found
        oddities += odd
    if len(counted) != 1:
        raise UnreadableTableError("the columns of the file do not have the same number of rows")
    return FoundColumns(counted.pop(), tuple(made), tuple(oddities))


Look = tuple[int, list[FoundColumn], list[Oddity]]


def _of_csv(connection: duckdb.DuckDBPyConnection, file: TableFile, numbers: Sequence[int]) -> Look:
    listed = ", ".join(f"c{each}" for each in numbers)
    # One expression for all columns: the engine takes long to understand each.
    query = f"""
    SELECT n, k, count(*), max(point - starts_with(v, '-')::INT),
        max(CASE WHEN point < size THEN size - point - 1 ELSE 0 END), max(size)
    FROM (SELECT n, v, strlen(v) AS size, {class_of("v")} AS k,
            CASE WHEN contains(v, '.') THEN strpos(v, '.') - 1 ELSE strlen(v) END AS point
        FROM (SELECT unnest(range({len(numbers)})) AS n, unnest([{listed}]) AS v
            FROM {file.relation}))
    GROUP BY n, k
    """  # noqa: S608 - our own words
    found: dict[int, list[tuple[Any, ...]]] = {place: [] for place in range(len(numbers))}
    for place, *told in rows(connection, query):
        found[place].append(tuple(told))
    made: list[FoundColumn] = []
    oddities: list[Oddity] = []
    for place, column in enumerate(numbers):
        told_of = {_kind(each[0]): each[1:] for each in found[place] if each[0] is not None}
        counts = {kind: told[0] for kind, told in told_of.items()}
        numeric = [told for kind, told in told_of.items() if kind in _NUMBERS]
        whole, scale = (max((told[at] for told in numeric), default=0) for at in (1, 2))
        kind = kind_of(counts, Digits(whole, scale))
        bytes_max = max((told[3] for told in told_of.values()), default=None)
        digits = max(1, whole + scale) if kind == kinds.DECIMAL else None
        places = scale if kind == kinds.DECIMAL else None
        name = file.names[column]
        made.append(FoundColumn(name, kind, None, digits, places, bytes_max))
        oddities += _mixed(connection, file, column, kind, counts)
    return sum(each[1] for each in found[0]), made, oddities


def _kind(number: int) -> str:
    return kinds.TEXT if number == TEXT_CLASS else CLASSES[number][0]


def _mixed(
    connection: duckdb.DuckDBPyConnection,
    file: TableFile,
    number: int,
    kind: str,
    counts: dict[str, int],
) -> Iterator[Oddity]:
    """Of a text whose values are mostly something else, or that has none."""
    total = sum(counts.values())
    if not total:
        yield Oddity("info", "no_values", number, "no row has a value; it becomes text", "")
        return
    most = max(counts, key=lambda each: counts[each])
    if kind != kinds.TEXT or most == kinds.TEXT or 2 * counts[most] <= total:
        return
    at = [name for name, _ in CLASSES].index(most)
    query = f"""
    SELECT n FROM (SELECT row_number() OVER () AS n, {class_of("c")} AS k
        FROM (SELECT c{number} AS c FROM {file.relation})) WHERE k <> {at} LIMIT 1
    """  # noqa: S608 - our own words
    row = rows(connection, query)
    where = f"; row {row[0][0]} is the first with another" if row else ""
    message = f"{counts[most]} of {total} values are {_WORDS[most]}{where}; it becomes text"
    remedy = "correct the values, or change the type of the column afterwards"
    if not row:
        message = f"the values are {_WORDS[most]} with too many digits; it becomes text"
    yield Oddity("warning", "mixed_types", number, message, remedy)


def _of_parquet(
    connection: duckdb.DuckDBPyConnection, file: TableFile, numbers: Sequence[int]
) -> Look:
    """Each value is read, so that a file that is damaged anywhere is found now."""
    asked = ["count(*)"]
    for each in numbers:
        kind, column = native_kind(file.natives[each]), f"c{each}"
        values = f"hex({column})" if kind == kinds.BLOB else f"{column}::VARCHAR"
        nul = f"contains({column}::VARCHAR, chr(0))" if kind in _TEXTS else "false"
        far = "false"
        if kind in _DATED:
            far = f"NOT isfinite({column}) OR year({column}) NOT BETWEEN 1 AND 9999"
        asked.append(f"max(strlen({values}))")
        boundless = f"NOT isfinite({column})" if kind in _FLOATING else "false"
        asked += [f"coalesce(bool_or({each}), false)" for each in (nul, far, boundless)]
    (answer,) = rows(connection, f"SELECT {', '.join(asked)} FROM {file.relation}")  # noqa: S608 - our own words
    made: list[FoundColumn] = []
    oddities: list[Oddity] = []
    for place, number in enumerate(numbers):
        bytes_max, *odd = answer[1 + 4 * place : 5 + 4 * place]
        native = file.natives[number]
        kind = native_kind(native)
        measured: dict[str, Any] = {"native": native[:200], "bytes_max": bytes_max}
        if kind == kinds.DECIMAL:
            found = _DECIMAL.fullmatch(native)
            measured["digits"], measured["scale"] = map(int, found.groups()) if found else (39, 0)
        made.append(FoundColumn(file.names[number], kind, **measured))
        oddities += [told[0] for told in zip(_of_values(number), odd, strict=True) if told[1]]
        oddities += _of_type(number, native, kind)
    return int(answer[0]), made, oddities


def _of_values(number: int) -> tuple[Oddity, Oddity, Oddity]:
    """What is told if a value is so, in the order in which that is asked."""
    message = "a value has a NUL character, which no text of a database may have"
    nul = Oddity("blocking", "nul", number, message, "write the column as bytes, or without it")
    message = "a date is infinite, or not in the years from 1 to 9999"
    far = Oddity("blocking", "far_date", number, message, "write the column as text")
    message = "a number is infinite, or NaN"
    boundless = Oddity("info", "not_finite", number, message, "write NULL in its place")
    return nul, far, boundless


def _of_type(number: int, native: str, kind: str) -> Iterator[Oddity]:
    if kind == kinds.TEXT and native != "VARCHAR":
        message = f"the type {native[:60]} has no like in the instance; it becomes text"
        yield Oddity("warning", "no_such_type", number, message, "")
    if native == "TIMESTAMP_NS":
        message = "timestamps have microseconds; nanoseconds are cut off"
        yield Oddity("warning", "nanoseconds", number, message, "")


def native_kind(native: str) -> str:
    if native in _NATIVE:
        return _NATIVE[native]
    if native.startswith("DECIMAL("):
        return kinds.DECIMAL
    return kinds.JSON if _NESTED.search(native) else kinds.TEXT
