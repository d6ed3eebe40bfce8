"""The tables of a source as changes are written to them, and whether they can be."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from cell.migrations.errors import MigrationError
from cell.migrations.postgres.psql import PsqlSession, QueryError
from cell.migrations.postgres.source import PostgresSource
from cell.migrations.postgres.tables import USERS, NamedObject

NAMES_SHOWN = 5
REPLICA = "SET session_replication_role = replica"
# Of a key, how it is compared: by the operator of its index, wherever that is. An index knows its
# type, unless that is one of many (any enum, any array).
TABLES = f"""
SELECT json_build_object('schema', n.nspname, 'name', c.relname,
    'columns', (SELECT coalesce(json_agg(json_build_array(a.attname, a.attidentity = 'a')), '[]')
        FROM pg_catalog.pg_attribute a WHERE a.attrelid = c.oid AND a.attnum > 0
        AND NOT a.attisdropped AND coalesce(to_jsonb(a) ->> 'attgenerated', '') = ''),
    'key', (SELECT coalesce(json_agg(json_build_array(a.attname,
            format('OPERATOR(%I.%s)', s.nspname, o.oprname),
            format('%I.%I', tn.nspname, t.typname))), '[]')
        FROM pg_catalog.pg_index i
        JOIN LATERAL generate_series(0, i.indnatts - 1) AS k ON i.indclass[k] IS NOT NULL
        JOIN pg_catalog.pg_attribute a ON a.attrelid = c.oid AND a.attnum = i.indkey[k]
        JOIN pg_catalog.pg_opclass l ON l.oid = i.indclass[k]
        JOIN pg_catalog.pg_am m ON m.oid = l.opcmethod AND m.amname = 'btree'
        JOIN pg_catalog.pg_amop p ON p.amopfamily = l.opcfamily AND p.amopstrategy = 3
            AND p.amoplefttype = l.opcintype AND p.amoprighttype = l.opcintype
        JOIN pg_catalog.pg_operator o ON o.oid = p.amopopr
        JOIN pg_catalog.pg_namespace s ON s.oid = o.oprnamespace
        JOIN pg_catalog.pg_type f ON f.oid = l.opcintype
        JOIN pg_catalog.pg_type t
            ON t.oid = CASE WHEN f.typtype = 'p' THEN a.atttypid ELSE f.oid END
        JOIN pg_catalog.pg_namespace tn ON tn.oid = t.typnamespace
        WHERE i.indrelid = c.oid
        AND (i.indisreplident OR c.relreplident = 'd' AND i.indisprimary)))
FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
WHERE c.relkind = 'r' AND c.relpersistence = 'p' AND {USERS} ORDER BY c.oid
"""  # noqa: S608 - our own words
# What a user lacks who may read a table.
UNWRITABLE = f"""
SELECT to_json(n.nspname || '.' || c.relname)
FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
WHERE {USERS} AND CASE c.relkind
    WHEN 'r' THEN c.relpersistence = 'p'
        AND NOT (pg_catalog.has_table_privilege(c.oid, 'SELECT')
        AND pg_catalog.has_table_privilege(c.oid, 'INSERT')
        AND pg_catalog.has_table_privilege(c.oid, 'UPDATE')
        AND pg_catalog.has_table_privilege(c.oid, 'DELETE')
        AND pg_catalog.has_table_privilege(c.oid, 'TRUNCATE'))
    WHEN 'S' THEN c.relpersistence = 'p'
        AND NOT pg_catalog.has_sequence_privilege(c.oid, 'UPDATE')
    ELSE false END
ORDER BY 1::text LIMIT 20
"""  # noqa: S608 - our own words
# What acts by itself on what is written, and has acted in the instance already.
ACTING = f"""
SELECT to_json(found.what) FROM (
    SELECT 'the trigger ' || t.tgname || ' of ' || n.nspname || '.' || c.relname AS what
    FROM pg_catalog.pg_trigger t JOIN pg_catalog.pg_class c ON c.oid = t.tgrelid
    JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
    WHERE NOT t.tgisinternal AND t.tgenabled IN ('O', 'A') AND c.relkind IN ('r', 'p') AND {USERS}
    UNION ALL
    SELECT 'the rule ' || r.rulename || ' of ' || n.nspname || '.' || c.relname
    FROM pg_catalog.pg_rewrite r JOIN pg_catalog.pg_class c ON c.oid = r.ev_class
    JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
    WHERE r.ev_enabled IN ('O', 'A') AND c.relkind IN ('r', 'p') AND {USERS}
    UNION ALL
    SELECT 'the foreign key ' || k.conname || ' of ' || n.nspname || '.' || c.relname
    FROM pg_catalog.pg_constraint k JOIN pg_catalog.pg_class c ON c.oid = k.conrelid
    JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
    WHERE k.contype = 'f' AND {USERS}
    AND (k.confdeltype IN ('c', 'n', 'd') OR k.confupdtype IN ('c', 'n', 'd'))
) AS found ORDER BY found.what LIMIT 20
"""  # noqa: S608 - our own words


@dataclass(frozen=True)
class KeyColumn:
    """How a column of a key is compared, in SQL."""

    operator: str
    type: str


@dataclass(frozen=True)
class WritableTable(NamedObject):
    """`columns` are those with values of their own; of an `always` one no update sets the value."""

    columns: frozenset[str]
    always: frozenset[str]
    key: dict[str, KeyColumn]


async def tables(session: PsqlSession) -> dict[tuple[str, str], WritableTable]:
    found = [_table(each) for each in await session.rows(TABLES)]
    return {(each.schema, each.name): each for each in found}


def _table(row: dict[str, Any]) -> WritableTable:
    columns = [(str(name), bool(always)) for name, always in row["columns"]]
    key = {str(name): KeyColumn(str(by), str(of)) for name, by, of in row["key"]}
    return WritableTable(
        *(str(row["schema"]), str(row["name"])),
        frozenset(name for name, _ in columns),
        frozenset(name for name, always in columns if always),
        key,
    )


async def check(source: PostgresSource) -> bool:
    """Whether triggers rest while changes are written.

    Raises MigrationError with what the source would need to get them.
    """
    async with source.session() as asked:
        unwritable = list(map(str, await asked.rows(UNWRITABLE)))
        acting = list(map(str, await asked.rows(ACTING)))
    if unwritable:
        raise MigrationError(
            "the user of the source may not write "
            f"{_listed(unwritable)}; grant it SELECT, INSERT, UPDATE, DELETE and TRUNCATE on "
            "tables, and UPDATE on sequences, and cut over again"
        )
    try:
        async with source.session() as asked:
            await asked.run(REPLICA)
    except QueryError:
        if acting:
            raise MigrationError(
                f"{_listed(acting)} would act on what is written to the source a "
                "second time; have a superuser of the source GRANT SET ON PARAMETER "
                "session_replication_role to its user (PostgreSQL 15 or newer), and cut over again"
            ) from None
        return False
    return True


def _listed(names: Sequence[str]) -> str:
    def told() -> Iterator[str]:
        yield from names[:NAMES_SHOWN]
        if len(names) > NAMES_SHOWN:
            yield "others"

    return ", ".join(told())
