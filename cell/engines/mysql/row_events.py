"""Events of a binary log that say what became of rows."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from cell.engines.mysql.row_values import (
    NULL,
    EventReader,
    LoggedColumn,
    LoggedType,
    MalformedEventError,
    literal,
    passed_over,
)

TABLE_MAP: Final = 19
WRITE_ROWS, UPDATE_ROWS, DELETE_ROWS = 23, 24, 25
ROWS: Final = frozenset({WRITE_ROWS, UPDATE_ROWS, DELETE_ROWS})
NO_FOREIGN_KEYS: Final = 2
COLUMNS_MAX: Final = 4096
OTHER_IMAGE: Final = "a change has not all columns: binlog_row_image must be FULL in all sessions"
Row = tuple[str, ...]


@dataclass(frozen=True)
class TableMap:
    """Which table the number in following events stands for, and its columns as they are logged."""

    number: int
    database: str
    name: str
    types: tuple[LoggedType, ...]

    @classmethod
    def parse(cls, body: bytes) -> "TableMap":
        data = EventReader(body)
        number, _ = data.number(6), data.take(2)
        database, name = _name(data), _name(data)
        count = data.count()
        if count > COLUMNS_MAX:
            raise MalformedEventError
        kinds, metadata = data.take(count), EventReader(data.take(data.count()))
        return cls(number, database, name, tuple(LoggedType.read(each, metadata) for each in kinds))

    def check(self, columns: Sequence[LoggedColumn]) -> None:
        """Whether it is a table of these; what a server makes for itself comes after them."""
        types = self.types[: len(columns)]
        if len(types) < len(columns) or not all(map(LoggedColumn.fits, columns, types)):
            told = f"the table {self.name} has other columns than it had; it was changed"
            raise MalformedEventError(told)

    @staticmethod
    def names(body: bytes) -> tuple[int, str, str]:
        """Of a table that may have columns which nobody follows."""
        data = EventReader(body)
        number, _ = data.number(6), data.take(2)
        return number, _name(data), _name(data)


@dataclass(frozen=True)
class LoggedRow:
    """The literals of all columns, before and after it; empty of a row that is not there."""

    before: Row
    after: Row


@dataclass(frozen=True)
class RowsEvent:
    table: int
    flags: int
    kind: int
    body: bytes

    @classmethod
    def parse(cls, kind: int, body: bytes) -> "RowsEvent":
        data = EventReader(body)
        return cls(data.number(6), data.number(2), kind, data.take(data.left))

    def changes(self, logged: TableMap, columns: Sequence[LoggedColumn]) -> Iterator[LoggedRow]:
        """Of a table that was checked to have these columns. Raises MalformedEventError."""
        data = EventReader(self.body)
        count = data.count()
        if count != len(logged.types):
            raise MalformedEventError
        for _ in range(2 if self.kind == UPDATE_ROWS else 1):
            if not all(_bits(data.take((count + 7) // 8), count)):
                raise MalformedEventError(OTHER_IMAGE)
        while data.left:
            first = _row(data, logged, columns)
            if self.kind == UPDATE_ROWS:
                yield LoggedRow(first, _row(data, logged, columns))
            else:
                is_new = self.kind == WRITE_ROWS
                yield LoggedRow(() if is_new else first, first if is_new else ())


def _row(data: EventReader, logged: TableMap, columns: Sequence[LoggedColumn]) -> Row:
    count = len(logged.types)
    nulls = _bits(data.take((count + 7) // 8), count)
    found = []
    for number, (kind, is_null) in enumerate(zip(logged.types, nulls, strict=True)):
        if number >= len(columns):
            if not is_null:
                passed_over(kind, data)
            continue
        found.append(NULL if is_null else literal(columns[number], kind, data))
    return tuple(found)


def _bits(content: bytes, count: int) -> list[bool]:
    return [bool(content[each // 8] >> each % 8 & 1) for each in range(count)]


def _name(data: EventReader) -> str:
    found = data.take(data.number(1))
    data.take(1)
    try:
        return found.decode()
    except UnicodeDecodeError as error:
        raise MalformedEventError from error
