"""The tables of a database: what is copied, and what source and instance hold of each."""

from dataclasses import dataclass
from typing import Any

from cell.migrations.postgres.psql import PsqlSession
from cell.migrations.postgres.quoting import identifier, literal, qualified, shown

# What belongs to an extension comes with it, except for tables that it says are the owner's.
USERS = """
n.nspname <> 'information_schema' AND n.nspname !~ '^pg_'
AND NOT EXISTS (SELECT FROM pg_catalog.pg_depend d WHERE d.classid = 'pg_catalog.pg_class'::regclass
    AND d.objid = c.oid AND d.deptype = 'e')
"""
TABLES = f"""
SELECT json_build_object('schema', n.nspname, 'name', c.relname,
    'persistence', c.relpersistence, 'bytes', pg_catalog.pg_table_size(c.oid),
    'rows', greatest(c.reltuples, 0)::bigint,
    'key', c.relreplident = 'f' OR EXISTS (SELECT FROM pg_catalog.pg_index i
        WHERE i.indrelid = c.oid AND (i.indisreplident
            OR c.relreplident = 'd' AND i.indisprimary)),
    'owned', pg_catalog.pg_has_role(c.relowner, 'USAGE'),
    'columns', (SELECT coalesce(json_agg(a.attname ORDER BY a.attnum), '[]'::json)
        FROM pg_catalog.pg_attribute a
        WHERE a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped AND a.attgenerated = ''))
FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
WHERE c.relkind = 'r' AND c.relpersistence <> 't' AND {USERS}
ORDER BY pg_catalog.pg_table_size(c.oid) DESC, n.nspname, c.relname
"""  # noqa: S608 - our own words
SEQUENCES = f"""
SELECT json_build_object('schema', n.nspname, 'name', c.relname)
FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
WHERE c.relkind = 'S' AND c.relpersistence <> 't' AND {USERS}
ORDER BY 1::text
"""  # noqa: S608 - our own words
MATERIALIZED = f"""
SELECT json_build_object('schema', n.nspname, 'name', c.relname, 'filled', c.relispopulated)
FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
WHERE c.relkind = 'm' AND {USERS} ORDER BY c.oid
"""  # noqa: S608 - our own words
# Both sides write values as texts in the same way, whatever is set for a database or a role. One
# that is full is read-only by default, so that nothing but removing goes on.
ALIKE = (
    "SET timezone = 'UTC'",
    "SET datestyle = 'ISO, MDY'",
    "SET intervalstyle = 'postgres'",
    "SET bytea_output = 'hex'",
    "SET extra_float_digits = 1",
    "SET xmloption = 'content'",
    "SET search_path = pg_catalog, pg_temp",
    "SET row_security = off",
    "SET statement_timeout = 0",
    "SET lock_timeout = 0",
    "SET idle_in_transaction_session_timeout = 0",
    "SET lc_monetary = 'C'",
    "SET default_transaction_read_only = off",
)


@dataclass(frozen=True)
class NamedObject:
    """`sql` as it stands in statements, `shown` as people read it."""

    schema: str
    name: str

    @property
    def sql(self) -> str:
        return qualified(self.schema, self.name)

    @property
    def shown(self) -> str:
        return shown(self.schema, self.name)


@dataclass(frozen=True)
class SourceTable(NamedObject):
    """`has_key`: whether changes of its rows can be told apart."""

    persistence: str
    size_bytes: int
    rows: int
    has_key: bool
    is_owned: bool
    columns: tuple[str, ...]

    @property
    def listed_columns(self) -> str:
        return ", ".join(map(identifier, self.columns))


@dataclass(frozen=True)
class Sequence(NamedObject):
    """Of numbers."""


async def tables(session: PsqlSession) -> list[SourceTable]:
    """The largest first."""
    return [_table(each) for each in await session.rows(TABLES)]


def _table(row: dict[str, Any]) -> SourceTable:
    return SourceTable(
        *(str(row["schema"]), str(row["name"]), str(row["persistence"])),
        *(int(row["bytes"]), int(row["rows"])),
        *(bool(row["key"]), bool(row["owned"])),
        tuple(map(str, row["columns"])),
    )


async def sequences(session: PsqlSession) -> list[Sequence]:
    return [Sequence(str(row["schema"]), str(row["name"])) for row in await session.rows(SEQUENCES)]


async def materialized(session: PsqlSession) -> list[tuple[str, bool]]:
    """As written in SQL, and whether each has rows; those that others are made of come first."""
    rows = await session.rows(MATERIALIZED)
    return [(qualified(str(row["schema"]), str(row["name"])), bool(row["filled"])) for row in rows]


async def state_of(session: PsqlSession, sequence: Sequence) -> tuple[int, bool]:
    query = f"SELECT json_build_array(last_value, is_called) FROM {sequence.sql}"  # noqa: S608 - quoted
    last, is_called = await session.value(query)
    return int(last), bool(is_called)


async def set_state(session: PsqlSession, sequence: Sequence, state: tuple[int, bool]) -> None:
    last, is_called = state
    named = literal(sequence.sql)
    await session.run(f"SELECT pg_catalog.setval({named}, {last}, {str(is_called).lower()})")


async def digest(session: PsqlSession, table: SourceTable) -> tuple[int, str]:
    """How many rows it has, and a sum over what is in them, in whatever order they lie."""
    query = f"""
    SELECT json_build_array(count(*),
        coalesce(sum(pg_catalog.hashtextextended(t.*::text, 0)::numeric), 0)::text)
    FROM ONLY {table.sql} AS t
    """  # noqa: S608 - quoted
    count, summed = await session.value(query)
    return int(count), str(summed)
