"""The tables that files become: what was found of each, and what an engine has against it."""

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, Final

from cell.migrations.errors import MigrationError
from cell.migrations.report import PreflightFinding, Severity
from instance_services.table_files.kinds import KINDS, FoundColumn

DELIMITERS: Final = {",": "comma", ";": "semicolon", "\t": "tab", "|": "bar"}
UNNAMED = "column_{number}"
CODE_CHARACTERS_MAX = 40
# What the first row of a file has that has no names.
_VALUE: Final = re.compile(r"[-+]?[0-9.,]+([eE][-+]?[0-9]+)?|[0-9]{4}-[0-9]{2}-[0-9]{2}.*|")


@dataclass(frozen=True)
class TableRules:
    """What an engine says of tables that are made in it."""

    engine: str
    schema: str
    name_bytes_max: int
    columns_max: int
    folds_case: bool
    has_infinity: bool = True
    """Whether floating-point numbers can be infinite, or none."""
    taken_columns: frozenset[str] = frozenset()
    taken_schemas: re.Pattern[str] = re.compile("(?!)")
    native: bool = False
    """Whether it has the types of Parquet files itself."""

    def folded(self, name: str) -> str:
        return name.lower() if self.folds_case else name


@dataclass(frozen=True)
class FileTable:
    """`path` is the file's name in what was sent, `file` where it lies now."""

    file: str
    path: str
    form: str
    encoding: str | None
    size_bytes: int
    schema: str
    name: str
    delimiter: str = ""
    rows: int = 0
    columns: tuple[FoundColumn, ...] = ()
    lines: int = 0
    blank: int = 0

    def document(self) -> dict[str, Any]:
        return asdict(self)

    @property
    def shown(self) -> str:
        return f"{self.schema}.{self.name}"

    def looked_at(self, said: dict[str, Any]) -> "FileTable":
        """With what the reader found. Raises MigrationError where that makes no sense."""
        try:
            columns = tuple(_column(each, at) for at, each in enumerate(said["columns"], start=1))
            rows, delimiter = int(said["rows"]), str(said["delimiter"])
        except (KeyError, TypeError, ValueError) as error:
            raise MigrationError(
                "what reads the file gave an answer that makes no sense"
            ) from error
        return replace(self, columns=columns, rows=rows, delimiter=delimiter)


def _column(said: dict[str, Any], number: int) -> FoundColumn:
    column = FoundColumn(**said)
    if column.kind not in KINDS:
        raise ValueError(column.kind)
    return replace(column, name=column.name or UNNAMED.format(number=number))


def finding(said: dict[str, Any]) -> PreflightFinding:
    """As the reader says it, whose words have bounds in the report only."""
    severity: Severity = "blocking"
    if said["severity"] in ("info", "warning"):
        severity = said["severity"]
    about = (str(said["remedy"]) or None, str(said["object"]) or None)
    code = str(said["code"])[:CODE_CHARACTERS_MAX]
    return PreflightFinding(severity, code, str(said["message"]), *about)


def oddities(
    table: FileTable, said: dict[str, Any], rules: TableRules
) -> Iterator[PreflightFinding]:
    """What the reader tells of the table's columns."""
    for each in said.get("oddities", ()):
        about = f"{table.shown}.{table.columns[each['column']].name}"
        if (severity := _severity(each, rules)) is not None:
            yield finding({**each, "object": about, "severity": severity})
    for number, each in enumerate(said["columns"], start=1):
        if not each["name"]:
            message = f"column {number} has no name; it becomes {UNNAMED.format(number=number)}"
            yield PreflightFinding("warning", "unnamed_column", message, None, table.shown)


def _severity(said: dict[str, Any], rules: TableRules) -> str | None:
    """None where the engine has nothing against it."""
    if said["code"] == "not_finite":
        return None if rules.has_infinity else "blocking"
    if said["code"] in ("no_such_type", "nanoseconds") and rules.native:
        return None
    return str(said["severity"])


def described(table: FileTable) -> PreflightFinding:
    """What it is, in a few words."""
    columns = ", ".join(f"{each.name} {_typed(each)}" for each in table.columns)
    how = "Parquet"
    if table.form == "csv":
        how = f"CSV, {DELIMITERS.get(table.delimiter, 'comma')}, {table.encoding}"
    message = f"{table.rows} rows ({how}); {len(table.columns)} columns: {columns}"
    return PreflightFinding("info", "table", message, None, table.shown)


def _typed(column: FoundColumn) -> str:
    if column.digits is None:
        return column.kind
    return f"{column.kind}({column.digits},{column.scale})"


def of_names(tables: Sequence[FileTable], rules: TableRules) -> Iterator[PreflightFinding]:
    """Names that cannot be, or not twice."""
    counted = Counter((rules.folded(each.schema), rules.folded(each.name)) for each in tables)
    for table in tables:
        if counted[rules.folded(table.schema), rules.folded(table.name)] > 1:
            message = f"several files are of the table {table.shown}, {table.path} among them"
            remedy = "send one file for each table"
            yield PreflightFinding("blocking", "duplicate_table", message, remedy, table.path)
        for what, name in (("schema", table.schema), ("table", table.name)):
            yield from _of_name(what, name, table.path, rules)
        if rules.taken_schemas.match(table.schema):
            message = f"{table.schema} is a schema of the engine's own"
            yield PreflightFinding(
                "blocking", "name_taken", message, "rename the folder", table.path
            )
        yield from _of_columns(table, rules)


def _of_columns(table: FileTable, rules: TableRules) -> Iterator[PreflightFinding]:
    names = [rules.folded(each.name) for each in table.columns]
    twice = [name for name, count in Counter(names).items() if count > 1]
    if twice:
        message = f"several columns have the name {twice[0]}"
        if rules.folds_case:
            message += "; upper and lower case are the same there"
        remedy = "rename all but one in the file"
        yield PreflightFinding("blocking", "duplicate_column", message, remedy, table.shown)
    if table.form == "csv" and all(_VALUE.fullmatch(name) for name in names):
        message = "the first row has values, where the names of the columns should be"
        remedy = "add a first row with the names"
        yield PreflightFinding("blocking", "no_header", message, remedy, table.shown)
    for each in table.columns:
        yield from _of_name("column", each.name, f"{table.shown}.{each.name}", rules)
        if rules.folded(each.name) in rules.taken_columns:
            message = f"each table of {rules.engine} has a column {each.name} of its own"
            remedy = "rename the column in the file"
            yield PreflightFinding("blocking", "name_taken", message, remedy, table.shown)
    if not table.rows:
        yield PreflightFinding("warning", "no_rows", "the file has no rows", None, table.shown)


def _of_name(what: str, name: str, about: str, rules: TableRules) -> Iterator[PreflightFinding]:
    if len(name.encode(errors="replace")) > rules.name_bytes_max:
        message = f"the name of the {what} has more than {rules.name_bytes_max} bytes"
        yield PreflightFinding("blocking", "name_too_long", message, "use a shorter name", about)
    elif not name.isprintable() or name != name.strip() or not name:
        message = f"the name of the {what} has control characters, or blanks around it, or is empty"
        yield PreflightFinding("blocking", "bad_name", message, "use another name", about)
