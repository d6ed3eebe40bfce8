"""Changes of all kinds to a server of PostgreSQL, drawn at random, and what is in it afterwards."""

import random
from collections.abc import Callable
from typing import Any

import psycopg

from contract_tests.engines.conftest import Subject
from contract_tests.engines.postgres_sessions import Connection, session, superuser

READ = """
SELECT n.nspname, c.relname, c.relpersistence FROM pg_class c
JOIN pg_namespace n ON n.oid = c.relnamespace
WHERE c.relkind IN ('r', 'm') AND n.nspname = 'public' ORDER BY 1, 2
"""
OBJECTS = "SELECT oid, md5(lo_get(oid)) FROM pg_largeobject_metadata ORDER BY oid"


class Changes:
    """Whatever a client or an administrator may do to tables, indexes, databases and objects."""

    def __init__(self, subject: Subject, seed: int) -> None:
        self._subject = subject
        self._random = random.Random(seed)
        self._made = 0
        self._kinds: list[Callable[[Connection], None]] = [
            *([self._insert] * 3),
            *([self._update] * 3),
            *([self._delete] * 3),
            *(self._create, self._drop, self._truncate, self._vacuum, self._index, self._cluster),
            *(self._unlogged, self._object, self._database, self._abort, self._sequence),
            *(self._widen, self._checkpoint, self._view),
        ]

    def begin(self) -> None:
        with session(self._subject, superuser(self._subject)) as connection:
            for _ in range(3):
                self._create(connection)

    def make(self, count: int) -> None:
        with session(self._subject, superuser(self._subject)) as connection:
            for _ in range(count):
                self._random.choice(self._kinds)(connection)

    def _name(self, prefix: str) -> str:
        self._made += 1
        return f"{prefix}{self._made}"

    def _some(self, connection: Connection) -> str | None:
        """A table."""
        query = "SELECT tablename FROM pg_tables WHERE schemaname = 'public' ORDER BY 1"
        found = [name for (name,) in connection.execute(query).fetchall()]
        return self._random.choice(found) if found else None

    def _on_some(self, connection: Connection, statement: str) -> None:
        if (table := self._some(connection)) is not None:
            low = self._random.randrange(3000)
            given = {"table": table, "low": low, "high": low + self._random.randrange(1, 1500)}
            connection.execute(statement.format(**given).encode())

    def _create(self, connection: Connection) -> None:
        table = self._name("t")
        connection.execute(f"CREATE TABLE {table} (n int PRIMARY KEY, t text)".encode())
        filled = self._random.randrange(3000)
        connection.execute(
            f"INSERT INTO {table} SELECT n, repeat(md5(n::text), 8)"
            f" FROM generate_series(1, {filled}) n".encode()
        )

    def _insert(self, connection: Connection) -> None:
        self._on_some(
            connection,
            "INSERT INTO {table} SELECT n, md5(n::text) FROM generate_series({low}, {high}) n"
            " ON CONFLICT DO NOTHING",
        )

    def _update(self, connection: Connection) -> None:
        self._on_some(
            connection, "UPDATE {table} SET t = md5(t) || 'u' WHERE n BETWEEN {low} AND {high}"
        )

    def _delete(self, connection: Connection) -> None:
        self._on_some(connection, "DELETE FROM {table} WHERE n BETWEEN {low} AND {high}")

    def _drop(self, connection: Connection) -> None:
        self._on_some(connection, "DROP TABLE {table} CASCADE")

    def _truncate(self, connection: Connection) -> None:
        self._on_some(connection, "TRUNCATE {table}")

    def _vacuum(self, connection: Connection) -> None:
        """What is empty at the end is cut off, and begun anew by what comes."""
        self._on_some(connection, "DELETE FROM {table} WHERE n > {low}")
        how = self._random.choice(["", "FREEZE", "FULL", "(DISABLE_PAGE_SKIPPING)"])
        self._on_some(connection, f"VACUUM {how} {{table}}")
        connection.execute(b"VACUUM")
        self._insert(connection)

    def _index(self, connection: Connection) -> None:
        kind = self._random.choice(["btree (t)", "hash (n)", "brin (n)", "gin ((ARRAY[n]))"])
        self._on_some(connection, f"CREATE INDEX ON {{table}} USING {kind}")
        self._on_some(connection, "REINDEX TABLE {table}")

    def _cluster(self, connection: Connection) -> None:
        self._on_some(connection, "CLUSTER {table} USING {table}_pkey")

    def _widen(self, connection: Connection) -> None:
        column = self._name("c")
        self._on_some(connection, f"ALTER TABLE {{table}} ADD {column} text DEFAULT md5('x')")

    def _unlogged(self, connection: Connection) -> None:
        table = self._name("u")
        connection.execute(f"CREATE UNLOGGED TABLE {table} (n int PRIMARY KEY, t text)".encode())
        connection.execute(
            f"INSERT INTO {table} SELECT n, 'u' FROM generate_series(1, 500) n".encode()
        )
        self._on_some(
            connection, f"ALTER TABLE {{table}} SET {self._random.choice(['', 'UN'])}LOGGED"
        )

    def _object(self, connection: Connection) -> None:
        size = self._random.randrange(1, 100_000)
        content = self._random.randbytes(size)
        connection.execute("SELECT lo_from_bytea(0, %s)", [content])
        if self._random.random() < 0.4:
            query = "SELECT lo_unlink(min(oid)) FROM pg_largeobject_metadata"
            connection.execute(query)

    def _database(self, connection: Connection) -> None:
        name, strategy = self._name("d"), self._random.choice(["wal_log", "file_copy"])
        source = self._random.choice(["template1", "template0"])
        connection.execute(f"CREATE DATABASE {name} TEMPLATE {source} STRATEGY {strategy}".encode())
        with session(self._subject, superuser(self._subject), name) as inside:
            inside.execute(b"CREATE TABLE inner_one AS SELECT n FROM generate_series(1, 900) n")
        if self._random.random() < 0.5:
            query = "SELECT datname FROM pg_database WHERE datname ~ '^d[0-9]' ORDER BY 1 LIMIT 1"
            row = connection.execute(query).fetchone()
            assert row is not None
            connection.execute(f"DROP DATABASE {row[0]}".encode())

    def _abort(self, connection: Connection) -> None:
        """Files grow by it all the same."""
        with connection.transaction(force_rollback=True):
            self._create(connection)
            self._insert(connection)
            self._truncate(connection)

    def _sequence(self, connection: Connection) -> None:
        name = self._name("s")
        connection.execute(f"CREATE SEQUENCE {name}".encode())
        connection.execute(f"SELECT nextval('{name}') FROM generate_series(1, 100)".encode())

    def _view(self, connection: Connection) -> None:
        name = self._name("v")
        self._on_some(
            connection,
            f"CREATE MATERIALIZED VIEW {name} AS SELECT n FROM {{table}} WHERE n > {{low}}",
        )

    def _checkpoint(self, connection: Connection) -> None:
        connection.execute(b"CHECKPOINT")


def contents(host: str, login: dict[str, Any]) -> dict[tuple[str, ...], Any]:
    """Everything in all databases, read twice: from the tables and, where it can be, by an index.

    Of what is unlogged there is nothing but the name: it is empty after it was restored.
    """
    found: dict[tuple[str, ...], Any] = {}
    with psycopg.connect(host=host, dbname="postgres", autocommit=True, **login) as connection:
        query = "SELECT datname FROM pg_database WHERE datallowconn AND datname <> 'template1'"
        databases = [name for (name,) in connection.execute(query).fetchall()]
    for database in databases:
        with psycopg.connect(host=host, dbname=database, autocommit=True, **login) as inside:
            found[database, "objects"] = inside.execute(OBJECTS).fetchall()
            for schema, table, persistence in inside.execute(READ).fetchall():
                told = None if persistence == "u" else _rows(inside, f'{schema}."{table}"')
                found[database, schema, table] = told
    return found


def _rows(connection: Connection, table: str) -> Any:
    """By a scan, and the numbers once more by an index, which believes the visibility map."""
    query = (
        f"SELECT count(*), sum(n::bigint), md5(string_agg(r::text, '' ORDER BY n)) FROM {table} r"
    )
    connection.execute("SET enable_seqscan = off; SET enable_bitmapscan = off")
    by_index = connection.execute(
        f"SELECT count(n), sum(n::bigint) FROM {table}".encode()
    ).fetchone()
    connection.execute(
        "SET enable_seqscan = on; SET enable_indexscan = off; SET enable_indexonlyscan = off"
    )
    scanned = connection.execute(query.encode()).fetchone()
    connection.execute("RESET ALL")
    assert scanned is not None
    assert by_index == scanned[:2]
    return scanned
