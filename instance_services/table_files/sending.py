"""Owns how the rows of a file leave it: as what COPY reads, as statements, or as a table."""

from collections.abc import Iterator, Sequence
from typing import Any, Final

import duckdb

from instance_services.table_files import canonical, framing, kinds
from instance_services.table_files.canonical import (
    CAST,
    DUCKDB,
    FOR_MARIADB,
    joined,
    native_value,
)
from instance_services.table_files.kinds import FoundColumn
from instance_services.table_files.reading import (
    TableFile,
    UnreadableTableError,
    identifier,
    rows,
    why,
)

BATCH_BYTES: Final = 4 << 20
BATCH_ROWS_MAX: Final = 2000
# Of a statement, beside its last row.
STATEMENT_BYTES: Final = 512 << 10
SHORT_DECIMAL: Final = 18
_ESCAPES: Final = (("\\", "\\\\"), ("\n", "\\n"), ("\r", "\\r"), ("\t", "\\t"))


def values(file: TableFile, columns: Sequence[FoundColumn]) -> list[tuple[str, str]]:
    """Of each column: the expression of its value, and its kind."""
    made = []
    for number, column in enumerate(columns):
        written = native_value if file.form == "parquet" else _csv_value
        made.append((written(f"c{number}", column), column.kind))
    return made


def _csv_value(name: str, column: FoundColumn) -> str:
    if column.kind == kinds.DECIMAL:
        is_short = (column.digits or 0) <= SHORT_DECIMAL
        digits = SHORT_DECIMAL if is_short else kinds.DECIMAL_DIGITS_MAX
        return f"{name}::DECIMAL({digits}, {column.scale or 0})"
    if column.kind == kinds.BLOB:
        return f"unhex(substr({name}, 3))"
    return f"{name}::{CAST[column.kind]}" if column.kind in CAST else name


def send_copy(
    connection: duckdb.DuckDBPyConnection, file: TableFile, columns: Sequence[FoundColumn]
) -> None:
    """As PostgreSQL's COPY reads it. Raises UnreadableTableError."""
    found = values(file, columns)
    parts = [f"coalesce({_copied(value, kind)}, '\\N')" for value, kind in found]
    separated = [parts[0], *(f"'\t' || {each}" for each in parts[1:])]
    line = f"{joined(separated)} || '\n'"
    _send(connection, file, columns, (line, canonical.in_duckdb(found)), _blocks)


def _copied(value: str, kind: str) -> str:
    if kind in (kinds.REAL, kinds.DOUBLE):
        return f"{value}::VARCHAR"
    text = DUCKDB[kind](value)
    if kind == kinds.BLOB:
        return f"'\\\\x' || {text}"
    if kind == kinds.TIMESTAMPTZ:
        return f"{text} || '+00'"
    if kind in (kinds.TEXT, kinds.JSON):
        for plain, escaped in _ESCAPES:
            text = f"replace({text}, '{plain}', '{escaped}')"
    return text


def send_inserts(
    connection: duckdb.DuckDBPyConnection,
    file: TableFile,
    columns: Sequence[FoundColumn],
    table: str,
) -> None:
    """As statements for MariaDB; `table` is quoted."""
    found = values(file, columns)
    parts = [f"coalesce({_literal(value, kind)}, 'NULL')" for value, kind in found]
    separated = [parts[0], *(f"',' || {each}" for each in parts[1:])]
    line = f"'(' || {joined(separated)} || ')'"

    def statements(lines: Iterator[bytes]) -> Iterator[bytes]:
        begin = f"INSERT INTO {table} VALUES ".encode()  # noqa: S608 - quoted
        for gathered in _gathered(lines):
            yield begin + b",".join(gathered) + b";\n"

    asked = (line, canonical.in_duckdb(found, FOR_MARIADB))
    _send(connection, file, columns, asked, statements)


def _literal(value: str, kind: str) -> str:
    if kind in (kinds.REAL, kinds.DOUBLE):
        return f"{value}::DOUBLE::VARCHAR"
    text = DUCKDB[kind](value)
    if kind == kinds.BLOB:
        return f"'X''' || {text} || ''''"
    if kind in (kinds.BOOLEAN, kinds.BIGINT, kinds.DECIMAL):
        return text
    if kind in (kinds.TEXT, kinds.JSON):
        quoted = f"'''' || replace({text}, '''', '''''') || ''''"
        # What means something to the client, within quotes or at the beginning of a line.
        in_hex = f"'_utf8mb4 X''' || hex({text}) || ''''"
        return f"CASE WHEN regexp_matches({text}, '[\\\\\n\r;]') THEN {in_hex} ELSE {quoted} END"
    return f"'''' || {text} || ''''"


def _blocks(lines: Iterator[bytes]) -> Iterator[bytes]:
    return (b"".join(gathered) for gathered in _gathered(lines))


def _gathered(lines: Iterator[bytes]) -> Iterator[list[bytes]]:
    """As many at a time as have more than STATEMENT_BYTES together, and the rest."""
    gathered: list[bytes] = []
    size = 0
    for each in lines:
        gathered.append(each)
        size += len(each)
        if size > STATEMENT_BYTES:
            yield gathered
            gathered, size = [], 0
    if gathered:
        yield gathered


def _send(
    connection: duckdb.DuckDBPyConnection,
    file: TableFile,
    columns: Sequence[FoundColumn],
    asked: tuple[str, str],
    grouped: Any,
) -> None:
    """Blocks, and then how many rows there were and the digest of them."""
    bytes_max = 64 + sum((each.bytes_max or 0) + 32 for each in columns)
    batch = max(1, min(BATCH_ROWS_MAX, BATCH_BYTES // bytes_max))
    query = f"SELECT {asked[0]}, {asked[1]} FROM {file.relation}"  # noqa: S608 - our own words
    count = summed = 0

    def lines() -> Iterator[bytes]:
        nonlocal count, summed
        result = connection.execute(query)
        while found := result.fetchmany(batch):
            for line, number in found:
                count += 1
                summed += number
                yield line.encode()

    try:
        for block in grouped(lines()):
            framing.pass_on(block)
    except (duckdb.Error, UnicodeDecodeError, MemoryError) as error:
        raise UnreadableTableError(why(error)) from error
    framing.end()
    framing.say({"rows": count, "digest": str(summed)})
    framing.flush()


def fill(
    connection: duckdb.DuckDBPyConnection,
    file: TableFile,
    columns: Sequence[FoundColumn],
    schema: str,
    name: str,
) -> None:
    """Makes a table of it in the connection's database; then the same as after blocks."""
    found = values(file, columns)
    taken = [f"{value}::JSON" if kind == kinds.JSON else value for value, kind in found]
    if file.form == "parquet":
        # With all types that the engine has itself.
        taken = [f"c{number}" for number in range(len(columns))]
    listed = ", ".join(
        f"{value} AS {identifier(column.name)}"
        for value, column in zip(taken, columns, strict=True)
    )
    rows(connection, f"CREATE SCHEMA IF NOT EXISTS {identifier(schema)}")
    place = f"{identifier(schema)}.{identifier(name)}"
    rows(connection, f"CREATE TABLE {place} AS SELECT {listed} FROM {file.relation}")  # noqa: S608 - quoted
    number = canonical.in_duckdb(found)
    query = f"SELECT count(*), coalesce(sum({number}), 0)::VARCHAR FROM {file.relation}"  # noqa: S608 - our own words
    ((count, digest),) = rows(connection, query)
    framing.say({"rows": count, "digest": digest})
    framing.flush()
