"""Owns how a row is compared: as a text that all engines make of its values alike, and its digest.

Each value is preceded by its length, so that no two rows have the same text; a digest is the sum of
60 bits of MD5 over the rows, in whatever order they lie.
"""

from collections.abc import Callable, Sequence
from typing import Final

from instance_services.table_files import kinds
from instance_services.table_files.kinds import FoundColumn

# An expression of more operators in a row than that is too deep for some engines.
JOINED_MAX: Final = 50
_DAY, _MOMENT = "%Y-%m-%d", "%Y-%m-%d %H:%M:%S.%f"
_PG_MOMENT = "YYYY-MM-DD HH24:MI:SS.US"

Write = Callable[[str], str]
"""An expression of a column's value, as one of the value's text."""

DUCKDB: Final[dict[str, Write]] = {
    **dict.fromkeys(kinds.KINDS, lambda c: f"{c}::VARCHAR"),
    kinds.REAL: lambda c: f"CASE WHEN isnan({c}) THEN 'nan' ELSE {c}::BIT::VARCHAR END",
    kinds.DOUBLE: lambda c: f"CASE WHEN isnan({c}) THEN 'nan' ELSE {c}::BIT::VARCHAR END",
    kinds.DATE: lambda c: f"strftime({c}, '{_DAY}')",
    kinds.TIMESTAMP: lambda c: f"strftime({c}::TIMESTAMP, '{_MOMENT}')",
    kinds.TIMESTAMPTZ: lambda c: f"strftime({c}, '{_MOMENT}')",
    kinds.TIME: lambda c: f"strftime(DATE '2000-01-01' + {c}, '%H:%M:%S.%f')",
    kinds.BLOB: lambda c: f"lower(hex({c}))",
}


def _bits(column: str, kind: str, bits: int) -> str:
    sent = f"pg_catalog.encode(pg_catalog.{kind}send({column}), 'hex')"
    return f"CASE WHEN {column} = 'NaN' THEN 'nan' ELSE ('x' || {sent})::bit({bits})::text END"


POSTGRES: Final[dict[str, Write]] = {
    **dict.fromkeys(kinds.KINDS, lambda c: f"{c}::text"),
    kinds.REAL: lambda c: _bits(c, "float4", 32),
    kinds.DOUBLE: lambda c: _bits(c, "float8", 64),
    kinds.DATE: lambda c: f"pg_catalog.to_char({c}, 'YYYY-MM-DD')",
    kinds.TIMESTAMP: lambda c: f"pg_catalog.to_char({c}, '{_PG_MOMENT}')",
    kinds.TIMESTAMPTZ: lambda c: f"pg_catalog.to_char({c} AT TIME ZONE 'UTC', '{_PG_MOMENT}')",
    kinds.TIME: lambda c: f"pg_catalog.to_char({c}, 'HH24:MI:SS.US')",
    kinds.BLOB: lambda c: f"pg_catalog.encode({c}, 'hex')",
}
MARIADB: Final[dict[str, Write]] = {
    **dict.fromkeys(kinds.KINDS, lambda c: f"CAST({c} AS CHAR)"),
    kinds.BOOLEAN: lambda c: f"IF({c}, 'true', 'false')",
    # It writes them in a way of its own: whether there is one is all that is compared.
    kinds.REAL: lambda c: f"IF({c} IS NULL, NULL, 'some')",
    kinds.DOUBLE: lambda c: f"IF({c} IS NULL, NULL, 'some')",
    kinds.TIMESTAMP: lambda c: f"DATE_FORMAT({c}, '%Y-%m-%d %H:%i:%s.%f')",
    kinds.TIMESTAMPTZ: lambda c: f"DATE_FORMAT({c}, '%Y-%m-%d %H:%i:%s.%f')",
    kinds.TIME: lambda c: f"TIME_FORMAT({c}, '%H:%i:%s.%f')",
    kinds.BLOB: lambda c: f"LOWER(HEX({c}))",
    kinds.TEXT: lambda c: c,
    kinds.JSON: lambda c: c,
}
FOR_MARIADB: Final[dict[str, Write]] = {
    **DUCKDB,
    kinds.REAL: lambda c: f"CASE WHEN {c} IS NULL THEN NULL ELSE 'some' END",
    kinds.DOUBLE: lambda c: f"CASE WHEN {c} IS NULL THEN NULL ELSE 'some' END",
}
"""What DuckDB makes of values, to be compared with what MariaDB makes of them."""


CAST: Final = {
    kinds.BOOLEAN: "BOOLEAN",
    kinds.BIGINT: "BIGINT",
    kinds.DOUBLE: "DOUBLE",
    kinds.DATE: "DATE",
    kinds.TIMESTAMP: "TIMESTAMP",
    kinds.TIMESTAMPTZ: "TIMESTAMPTZ",
    kinds.TIME: "TIME",
    kinds.UUID: "UUID",
}


def native_value(expression: str, column: FoundColumn) -> str:
    """Of a column of a Parquet file: as its kind has it, not as the file."""
    if column.kind == kinds.JSON and column.native != "JSON":
        return f"to_json({expression})::VARCHAR"
    if column.kind in (kinds.TEXT, kinds.JSON):
        return f"{expression}::VARCHAR"
    return f"{expression}::{CAST[column.kind]}" if column.kind in CAST else expression


def in_duckdb(columns: Sequence[tuple[str, str]], ways: dict[str, Write] = DUCKDB) -> str:
    """Of the columns, each an expression and its kind: the number of a row."""
    texts = [ways[kind](column) for column, kind in columns]
    parts = [f"coalesce(length({each})::VARCHAR || ':' || {each}, 'N')" for each in texts]
    return f"('0x' || substr(md5({joined(parts)}), 1, 15))::BIGINT"


def in_postgres(columns: Sequence[tuple[str, str]]) -> str:
    texts = [POSTGRES[kind](column) for column, kind in columns]
    parts = [f"coalesce(pg_catalog.length({each})::text || ':' || {each}, 'N')" for each in texts]
    row = f"pg_catalog.md5(pg_catalog.convert_to({joined(parts)}, 'UTF8'))"
    return f"('x' || pg_catalog.substr({row}, 1, 15))::bit(60)::bigint"


def in_mariadb(columns: Sequence[tuple[str, str]]) -> str:
    texts = [MARIADB[kind](column) for column, kind in columns]
    parts = [f"COALESCE(CONCAT(CHAR_LENGTH({each}), ':', {each}), 'N')" for each in texts]
    row = f"MD5(CONVERT(CONCAT({', '.join(parts)}) USING utf8mb4))"
    return f"CAST(CONV(LEFT({row}, 15), 16, 10) AS UNSIGNED)"


def joined(parts: Sequence[str]) -> str:
    """All texts as one, in an expression that is not deep."""
    if len(parts) <= JOINED_MAX:
        return f"({' || '.join(parts)})"
    groups = [parts[at : at + JOINED_MAX] for at in range(0, len(parts), JOINED_MAX)]
    return joined([joined(each) for each in groups])
