"""Changes of an instance as statements for its source. Each tells of each row that it changed."""

from collections.abc import Iterable, Iterator

from cell.migrations.errors import ReverseSyncEndedError
from cell.migrations.postgres.pgoutput import (
    UNCHANGED,
    Change,
    Relation,
    RelationColumn,
    Row,
    RowChange,
    Truncate,
    Unchanged,
    Value,
)
from cell.migrations.postgres.quoting import identifier, literal, shown
from cell.migrations.postgres.writable import WritableTable

# Of these types equal values are written alike, so that an index can find them.
COMPARED = frozenset({16, 20, 21, 23, 1082, 1114, 1184, 2950})

Tables = dict[tuple[str, str], WritableTable]


def table_of(tables: Tables, relation: Relation) -> WritableTable:
    """Raises ReverseSyncEndedError where the instance has another table than the source."""
    found = tables.get((relation.schema, relation.name))
    name = shown(relation.schema, relation.name)
    if found is None:
        raise ReverseSyncEndedError(f"the source has no table {name}, which the instance has")
    columns = {each.name for each in relation.columns}
    if columns != found.columns:
        differ = ", ".join(sorted(columns ^ found.columns)[:5])
        raise ReverseSyncEndedError(
            f"the table {name} has other columns in the instance than at the source ({differ}), "
            "and changes of the schema are not carried"
        )
    return found


def statement(tables: Tables, change: Change, number: int) -> str:
    """It answers `number` once for a row that it changed; a truncation answers nothing."""
    if isinstance(change, Truncate):
        return _truncation(tables, change)
    table, relation = table_of(tables, change.relation), change.relation
    if change.row is None:
        found = _row_of(table, relation, change.former or ())
        return f"DELETE FROM ONLY {table.sql} AS t WHERE {found} RETURNING {number}"  # noqa: S608 - quoted
    if change.is_new:
        return f"{_insertion(table, relation, change.row)} RETURNING {number}"
    return _update(table, change, change.row, number)


def _truncation(tables: Tables, change: Truncate) -> str:
    named = ", ".join(f"ONLY {table_of(tables, each).sql}" for each in change.relations)
    return f"TRUNCATE {named} {'RESTART' if change.restarts else 'CONTINUE'} IDENTITY"


def _insertion(table: WritableTable, relation: Relation, row: Row) -> str:
    if not row:
        return f"INSERT INTO {table.sql} DEFAULT VALUES"
    names = ", ".join(identifier(each.name) for each in relation.columns)
    values = ", ".join(map(_value, row))
    return f"INSERT INTO {table.sql} ({names}) OVERRIDING SYSTEM VALUE VALUES ({values})"  # noqa: S608 - quoted


def _update(table: WritableTable, change: RowChange, row: Row, number: int) -> str:
    columns = change.relation.columns
    stays = not change.relation.is_whole and change.former is None
    pairs = [*zip(columns, row, strict=True)]
    found = _row_of(table, change.relation, change.former or row)
    fixed = [(column, value) for column, value in pairs if column.name in table.always]
    if stays and fixed:
        # No update sets them, here or there.
        found = " AND ".join([found, *_equals(fixed)])
    sets = [
        f"{identifier(column.name)} = {_value(value)}"
        for column, value in pairs
        if value is not UNCHANGED
        and column.name not in table.always
        and not (stays and column.is_key)
    ]
    if not sets:
        return f"SELECT {number} FROM ONLY {table.sql} AS t WHERE {found}"  # noqa: S608 - quoted
    return f"UPDATE ONLY {table.sql} AS t SET {', '.join(sets)} WHERE {found} RETURNING {number}"  # noqa: S608 - quoted


def _row_of(table: WritableTable, relation: Relation, row: Row) -> str:
    """By its key; where it has none, by all of it, and then of equal rows one."""
    pairs = [*zip(relation.columns, row, strict=True)]
    if not relation.is_whole:
        return " AND ".join(_key(table, pairs)) or "false"
    all_of_it = " AND ".join(_equals(pairs)) or "true"
    return f"t.ctid = (SELECT t.ctid FROM ONLY {table.sql} AS t WHERE {all_of_it} LIMIT 1)"  # noqa: S608 - quoted


def _key(table: WritableTable, pairs: Iterable[tuple[RelationColumn, Value]]) -> Iterator[str]:
    for column, value in pairs:
        if not column.is_key:
            continue
        by = table.key.get(column.name)
        if by is None:
            raise ReverseSyncEndedError(
                f"the table {table.shown} has another key in the instance than at the source"
            )
        yield f"t.{identifier(column.name)} {by.operator} {_value(value)}::{by.type}"


def _equals(pairs: Iterable[tuple[RelationColumn, Value]]) -> Iterator[str]:
    """Not all types have an operator for it, and of some equal values are written differently."""
    for column, value in pairs:
        named = f"t.{identifier(column.name)}"
        if value is None:
            yield f"{named} IS NOT DISTINCT FROM NULL"
        elif isinstance(value, Unchanged):
            continue
        elif column.type_oid in COMPARED:
            yield f"{named} = {_value(value)}"
        else:
            text = f"pg_catalog.format('%s', {named}) COLLATE pg_catalog.\"C\""
            yield f"{named} IS DISTINCT FROM NULL AND {text} = {_value(value)}"


def _value(value: Value) -> str:
    if isinstance(value, Unchanged):
        raise ReverseSyncEndedError("a value that was not sent is needed")
    return "NULL" if value is None else literal(value)
