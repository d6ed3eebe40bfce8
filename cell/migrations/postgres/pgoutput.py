"""What a server says of the changes in its tables: the messages of pgoutput, version 1 of them."""

import struct
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from cell.migrations.errors import MigrationError

RELATIONS_MAX = 200_000
_BEGIN = struct.Struct("!QqI")
_COMMIT = struct.Struct("!BQQq")
_RESTARTS = 2
_IS_KEY = 1


class Unchanged:
    """In place of a value that was left as it is, and is too large to be said again."""


UNCHANGED: Final = Unchanged()
Value = str | None | Unchanged
Row = tuple[Value, ...]


@dataclass(frozen=True)
class RelationColumn:
    name: str
    is_key: bool
    type_oid: int


@dataclass(frozen=True)
class Relation:
    """A table as it is at a change. `is_whole`: changes tell all of a former row, and not a key."""

    schema: str
    name: str
    is_whole: bool
    columns: tuple[RelationColumn, ...]


@dataclass(frozen=True)
class Begin:
    """`commit` is the position of what ends it."""

    commit: int


@dataclass(frozen=True)
class Commit:
    """`end` is the position after it."""

    end: int


@dataclass(frozen=True)
class RowChange:
    """`former` is None where the key stays; `row` is None of one that was deleted."""

    relation: Relation
    former: Row | None
    row: Row | None
    is_new: bool = False


@dataclass(frozen=True)
class Truncate:
    relations: tuple[Relation, ...]
    restarts: bool


Change = RowChange | Truncate
Message = Begin | Commit | Change


class Decoder:
    """Of one connection, which says what a table is before the first change of it."""

    def __init__(self) -> None:
        self._relations: dict[int, Relation] = {}

    def decode(self, message: bytes) -> Message | None:
        """None of what changes nothing. Raises MigrationError where it cannot be read."""
        try:
            return self._decode(_Reader(message))
        except (struct.error, IndexError, KeyError, ValueError) as error:
            raise MigrationError("the changes of the instance cannot be read") from error

    def _decode(self, reader: "_Reader") -> Message | None:
        kind = reader.kind()
        if kind == "B":
            return Begin(reader.unpack(_BEGIN)[0])
        if kind == "C":
            return Commit(reader.unpack(_COMMIT)[2])
        if kind == "R":
            self._learn(reader)
            return None
        if kind in "IUD":
            return self._row_change(kind, reader)
        if kind == "T":
            return self._truncate(reader)
        if kind in "OYM":
            return None
        raise ValueError(kind)

    def _learn(self, reader: "_Reader") -> None:
        oid = reader.integer(4)
        schema, name = reader.text() or "pg_catalog", reader.text()
        identity = reader.kind()
        made = Relation(schema, name, identity == "f", tuple(_columns(reader)))
        if len(self._relations) >= RELATIONS_MAX:
            raise ValueError(oid)
        self._relations[oid] = made

    def _row_change(self, kind: str, reader: "_Reader") -> RowChange:
        relation = self._relations[reader.integer(4)]
        former, tag = None, reader.kind()
        if tag in "KO":
            former = self._row(relation, reader)
            if kind == "D":
                return RowChange(relation, former, None)
            tag = reader.kind()
        if tag != "N" or kind == "D":
            raise ValueError(tag)
        return RowChange(relation, former, self._row(relation, reader), is_new=kind == "I")

    def _truncate(self, reader: "_Reader") -> Truncate:
        count, options = reader.integer(4), reader.integer(1)
        found = [self._relations[reader.integer(4)] for _ in range(count)]
        return Truncate(tuple(found), bool(options & _RESTARTS))

    @staticmethod
    def _row(relation: Relation, reader: "_Reader") -> Row:
        row = tuple(reader.value() for _ in range(reader.integer(2)))
        if len(row) != len(relation.columns):
            raise ValueError(len(row))
        return row


class _Reader:
    def __init__(self, content: bytes) -> None:
        self._content = content
        self._place = 0

    def kind(self) -> str:
        return chr(self.integer(1))

    def integer(self, size: int) -> int:
        return int.from_bytes(self._take(size), "big")

    def unpack(self, form: struct.Struct) -> tuple[int, ...]:
        return form.unpack(self._take(form.size))

    def text(self) -> str:
        end = self._content.index(b"\0", self._place)
        return self._take(end + 1 - self._place)[:-1].decode()

    def value(self) -> Value:
        kind = self.kind()
        if kind == "n":
            return None
        if kind == "u":
            return UNCHANGED
        if kind != "t":
            raise ValueError(kind)
        return self._take(self.integer(4)).decode()

    def _take(self, size: int) -> bytes:
        taken = self._content[self._place : self._place + size]
        if len(taken) != size:
            raise IndexError(size)
        self._place += size
        return taken


def _columns(reader: _Reader) -> Iterator[RelationColumn]:
    for _ in range(reader.integer(2)):
        flags = reader.integer(1)
        name, type_oid = reader.text(), reader.integer(4)
        reader.integer(4)
        yield RelationColumn(name, bool(flags & _IS_KEY), type_oid)
