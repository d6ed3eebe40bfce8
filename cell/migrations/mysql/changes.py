"""Changes of rows as statements that the owner of an instance may run."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from cell.engines.mysql.row_events import LoggedRow, Row
from cell.engines.mysql.row_values import LoggedColumn, MalformedEventError
from cell.migrations.mysql.session import identifier

# What a server sets to the time of the change, unless it is told.
TIMES = frozenset({"timestamp", "datetime"})
# Of one INSERT; a row alone may be longer.
STATEMENT_CHARACTERS = 2**20


@dataclass(frozen=True)
class TargetTable:
    database: str
    name: str
    columns: tuple[LoggedColumn, ...]
    is_sequence: bool

    @property
    def place(self) -> str:
        return f"{identifier(self.database)}.{identifier(self.name)}"


@dataclass(frozen=True)
class Statement:
    """`rows` is how many it must find."""

    sql: str
    rows: int


def statements(table: TargetTable, changes: Iterable[LoggedRow]) -> Iterator[Statement]:
    new: list[str] = []
    size = 0
    for change in changes:
        if not change.before:
            new.append(f"({', '.join(_written(table, change.after))})")
            size += len(new[-1])
            if size < STATEMENT_CHARACTERS and not table.is_sequence:
                continue
        if new:
            yield _insert(table, new)
            new, size = [], 0
        if change.before:
            yield _of_one(table, change)
    if new:
        yield _insert(table, new)


def emptied(table: TargetTable) -> Statement:
    """As TRUNCATE does, which would end the transaction."""
    return Statement(f"DELETE FROM {table.place}", -1)  # noqa: S608 - quoted


def _insert(table: TargetTable, new: Sequence[str]) -> Statement:
    names = ", ".join(identifier(each.name) for each in table.columns if not each.is_generated)
    told = f"INSERT INTO {table.place} ({names}) VALUES {', '.join(new)}"  # noqa: S608 - quoted
    return Statement(told, len(new))


def _of_one(table: TargetTable, change: LoggedRow) -> Statement:
    if not any(each.is_key for each in table.columns):
        raise MalformedEventError(f"the table {table.name} has no primary key")
    found = " AND ".join(
        f"{identifier(column.name)} = {value}"
        for column, value in zip(table.columns, change.before, strict=True)
        if column.is_key
    )
    where = f"WHERE {found} LIMIT 1"
    if not change.after:
        return Statement(f"DELETE FROM {table.place} {where}", 1)  # noqa: S608 - quoted
    # What stays as it was is not sent again: it may be long.
    values = ", ".join(
        f"{identifier(column.name)} = {after}"
        for column, before, after in zip(table.columns, change.before, change.after, strict=True)
        if not column.is_generated and (before != after or column.data_type in TIMES)
    )
    key = next(identifier(each.name) for each in table.columns if each.is_key)
    told = f"UPDATE {table.place} SET {values or f'{key} = {key}'} {where}"  # noqa: S608 - quoted
    return Statement(told, 1)


def _written(table: TargetTable, row: Row) -> Iterator[str]:
    return (
        value for column, value in zip(table.columns, row, strict=True) if not column.is_generated
    )
