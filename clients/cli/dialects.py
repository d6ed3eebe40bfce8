"""What the small client knows of each engine: where statements end, how to ask what is there."""

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

Split = Callable[[str], tuple[list[str], str]]

# What may hold a `;` that does not end the statement: strings, names, comments.
OPAQUE: Final = re.compile(
    r"\b[eE]'(?:[^'\\]|''|\\.)*'|'(?:[^']|'')*'|\"(?:[^\"]|\"\")*\"|--[^\n]*|/\*.*?\*/"
    r"|\$(\w*)\$.*?\$\1\$",
    re.DOTALL,
)
OPEN: Final = re.compile(r"'|\"|/\*|\$\w*\$")
# In MySQL's words a backslash escapes, and there are other quotes and comments.
MYSQL_OPAQUE: Final = re.compile(
    r"'(?:[^'\\]|''|\\.)*'|\"(?:[^\"\\]|\"\"|\\.)*\"|`[^`]*`|--(?=\s)[^\n]*|\#[^\n]*|/\*.*?\*/",
    re.DOTALL,
)
MYSQL_OPEN: Final = re.compile(r"'|\"|`|/\*")

HELP: Final = """\\q            quit (so does Ctrl-D)
\\d            list the tables
\\d NAME       describe a table
\\l            list the databases
\\timing       show or hide how long each statement took
\\?            this help
A statement ends with `;` and may span several lines. Ctrl-C discards or cancels it."""
MYSQL_HELP: Final = (
    HELP + "\nThere is no DELIMITER: `menagerie query` takes a procedure with the `;` in its body."
)
LINES_HELP: Final = """\\q            quit (so does Ctrl-D)
\\timing       show or hide how long each command took
\\?            this help
A command is one line. Quote words that contain spaces. Ctrl-C discards what you typed."""


def statements(
    text: str, opaque: re.Pattern[str] = OPAQUE, opened: re.Pattern[str] = OPEN
) -> tuple[list[str], str]:
    """Answer the complete statements of the text, and what is left to be completed."""
    blanked = opaque.sub(lambda found: re.sub(r"[^\n]", " ", found.group()), text)
    # Only what stands before an unclosed quote can end a statement.
    unclosed = opened.search(blanked)
    readable = blanked[: unclosed.start()] if unclosed else blanked
    done, start = [], 0
    for found in re.finditer(";", readable):
        done.append(text[start : found.start()].strip())
        start = found.end()
    return [one for one in done if one], text[start:].lstrip()


def mysql_statements(text: str) -> tuple[list[str], str]:
    return statements(text, MYSQL_OPAQUE, MYSQL_OPEN)


def lines(text: str) -> tuple[list[str], str]:
    return [one.strip() for one in text.splitlines() if one.strip()], ""


@dataclass(frozen=True)
class Dialect:
    """`columns` takes the table's name as its one value."""

    split: Split = statements
    help: str = HELP
    tables: str | None = None
    columns: str | None = None
    databases: str | None = None


DUCKDB: Final = Dialect(
    tables="SELECT table_schema, table_name, table_type FROM information_schema.tables"
    " ORDER BY 1, 2",
    columns="SELECT column_name, data_type, is_nullable FROM information_schema.columns"
    " WHERE table_name = ? ORDER BY ordinal_position",
    databases="SELECT database_name, readonly FROM duckdb_databases() WHERE NOT internal",
)
POSTGRES: Final = Dialect(
    tables="SELECT table_schema, table_name, table_type FROM information_schema.tables"
    " WHERE table_schema NOT IN ('pg_catalog', 'information_schema') ORDER BY 1, 2",
    # The engine's own rules tell which table a name means, and say where there is none.
    columns="SELECT attname AS column_name, format_type(atttypid, atttypmod) AS data_type,"
    " CASE WHEN attnotnull THEN 'NO' ELSE 'YES' END AS is_nullable,"
    " pg_get_expr(adbin, adrelid) AS column_default"
    " FROM pg_attribute LEFT JOIN pg_attrdef ON adrelid = attrelid AND adnum = attnum"
    " WHERE attrelid = $1::text::regclass AND attnum > 0 AND NOT attisdropped ORDER BY attnum",
    databases="SELECT datname AS database_name, pg_get_userbyid(datdba) AS owner"
    " FROM pg_database WHERE NOT datistemplate ORDER BY 1",
)
MYSQL: Final = Dialect(
    split=mysql_statements,
    help=MYSQL_HELP,
    tables="SELECT table_schema, table_name, table_type FROM information_schema.tables"
    " WHERE table_schema NOT IN ('information_schema', 'mysql', 'performance_schema', 'sys')"
    " ORDER BY 1, 2",
    columns="SELECT column_name, column_type AS data_type, is_nullable, column_default"
    " FROM information_schema.columns WHERE table_schema = DATABASE() AND table_name = ?"
    " ORDER BY ordinal_position",
    databases="SHOW DATABASES",
)
RESP: Final = Dialect(split=lines, help=LINES_HELP)
DIALECTS: Final = {
    "duckdb": DUCKDB, "postgres": POSTGRES, "timescaledb": POSTGRES, "mysql": MYSQL,
    "mariadb": MYSQL, "redis": RESP, "valkey": RESP,
}  # fmt: skip
