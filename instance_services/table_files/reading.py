"""Owns how files are read: a connection that sees one folder, and each file as a relation.

Columns have the names c0, c1, … there, whatever they are called in the file.
"""

import csv
import io
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import duckdb

from instance_services.duckdb.database import EngineLimits, configuration
from instance_services.table_files import kinds

NAME_CHARACTERS_MAX: Final = 256
DELIMITERS: Final = {",": "comma", ";": "semicolon", "\t": "tab", "|": "bar"}
_LINE = re.compile(r"CSV Error on Line: (\d+)")
_FOUND = re.compile(r"Expected Number of Columns: (\d+) Found: (\d+)")


class UnreadableTableError(Exception):
    """A file cannot be read; says why, and where, without a word of what is in it."""


@dataclass(frozen=True)
class TableFile:
    """`names` are the file's own, `natives` the types that the engine has for a Parquet file."""

    path: Path
    form: str
    delimiter: str
    names: tuple[str, ...]
    natives: tuple[str, ...]

    @property
    def relation(self) -> str:
        if self.form == "parquet":
            listed = ", ".join(f"c{number}" for number in range(len(self.names)))
            return f"read_parquet({text(str(self.path))}) AS t({listed})"
        columns = ", ".join(f"'c{number}': 'VARCHAR'" for number in range(len(self.names)))
        return (
            f"read_csv({text(str(self.path))}, auto_detect = false, header = true,"
            f" delim = {text(self.delimiter)}, quote = '\"', escape = '\"', nullstr = '',"
            " allow_quoted_nulls = false, strict_mode = true, compression = 'none',"
            f" max_line_size = {kinds.ROW_BYTES_MAX}, buffer_size = {2 * kinds.ROW_BYTES_MAX},"
            f" columns = {{{columns}}})"
        )


def connect(
    folder: Path, memory_bytes: int, threads: int, database: str = ":memory:"
) -> duckdb.DuckDBPyConnection:
    """Reads what is in the folder; writes its database, and nothing else."""
    config = configuration(folder, EngineLimits(memory_bytes, threads))
    connection = duckdb.connect(database, config=config | {"temp_directory": ""})
    connection.execute("SET TimeZone = 'UTC'")
    connection.execute(f"SET allowed_directories = [{text(str(folder))}]")
    connection.execute("SET enable_external_access = false")
    connection.execute("SET lock_configuration = true")
    return connection


def opened(connection: duckdb.DuckDBPyConnection, path: Path, form: str) -> TableFile:
    """With its columns. Raises UnreadableTableError."""
    if form == "csv":
        delimiter, names = _header(path)
        return TableFile(path, form, delimiter, _checked(names), ())
    quoted = text(str(path))
    described = rows(connection, f"DESCRIBE SELECT * FROM read_parquet({quoted})")  # noqa: S608 - quoted
    schema = rows(connection, f"SELECT name, num_children FROM parquet_schema({quoted})")  # noqa: S608 - quoted
    names = tuple(_top_names(schema))
    if len(names) != len(described):
        raise UnreadableTableError("the columns of the file are not what its metadata says")
    natives = tuple(str(each[1]) for each in described)
    return TableFile(path, form, "", _checked(names), natives)


def _checked(names: tuple[str, ...]) -> tuple[str, ...]:
    if len(names) > kinds.COLUMNS_MAX:
        raise UnreadableTableError(
            f"the file has {len(names)} columns; at most {kinds.COLUMNS_MAX} are read"
        )
    for number, name in enumerate(names, start=1):
        if len(name) > NAME_CHARACTERS_MAX:
            raise UnreadableTableError(
                f"the name of column {number} has more than {NAME_CHARACTERS_MAX} characters"
            )
    return names


def _top_names(schema: list[tuple[Any, ...]]) -> list[str]:
    """Of the columns, without those within them; in the order of the tree, the root first."""
    found: list[str] = []
    skip = 0
    for name, children in schema[1:]:
        if skip:
            skip -= 1
        else:
            found.append(str(name))
        skip += int(children or 0)
    return found


def _header(path: Path) -> tuple[str, tuple[str, ...]]:
    """The delimiter and the names, which the first row has. Raises UnreadableTableError."""
    with path.open(encoding="utf-8", newline="") as file:
        head = file.read(kinds.ROW_BYTES_MAX)
    if not head:
        raise UnreadableTableError(
            "the file is empty: it has no first row with the names of columns"
        )
    unquoted = re.sub(r'"[^"]*"', "", head)
    line = re.split(r"[\r\n]", unquoted, maxsplit=1)[0]
    delimiter = max(DELIMITERS, key=line.count)
    csv.field_size_limit(kinds.ROW_BYTES_MAX)
    try:
        lines = io.StringIO(head, newline="")
        names = next(csv.reader(lines, delimiter=delimiter, strict=True))
    except (csv.Error, StopIteration):
        names = []
    if not names:
        raise UnreadableTableError("the first row, which has the names of columns, cannot be read")
    return delimiter, tuple(name.strip() for name in names)


def rows(connection: duckdb.DuckDBPyConnection, query: str) -> list[tuple[Any, ...]]:
    """Raises UnreadableTableError."""
    try:
        return connection.execute(query).fetchall()
    except (duckdb.Error, UnicodeDecodeError, MemoryError) as error:
        raise UnreadableTableError(why(error)) from error


def why(error: BaseException) -> str:
    """Without what is in the file, which the messages of the engine repeat."""
    said = str(error)
    if isinstance(error, MemoryError | duckdb.OutOfMemoryException):
        return "reading the file needs more memory than the size of the instance has"
    if (found := _LINE.search(said)) is not None:
        return f"line {found[1]}{_why_of_line(said)}"
    if "state machine" in said:
        return "the rows of the file do not all end in the same way (\\n, \\r\\n)"
    return "the file is damaged, or is not what it says it is"


def _why_of_line(said: str) -> str:
    if counts := _FOUND.search(said):
        return f" has {counts[2]} columns, and the first row {counts[1]}"
    if "Maximum line size" in said:
        return f": a row has more than {kinds.ROW_BYTES_MAX} bytes"
    if "unterminated quote" in said:
        return ": a quote is opened and not closed, or stands where none may"
    return " cannot be read as CSV"


def text(value: str) -> str:
    return "'" + value.replace("'", "''") + "'"


def identifier(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'
