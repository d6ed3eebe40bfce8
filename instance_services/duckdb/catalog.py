"""Owns what is read of a tenant's catalog, in statements that nothing of the tenant's can change.

Unless it is written `system.main.…`, a function, an operator like `||` or a view may be the
tenant's own. So these statements use none but the engine's table functions, by that name, and
names are put together in Python. A test holds every statement of this service to that.
"""

from dataclasses import dataclass
from typing import Any

from instance_services.duckdb.tokens import after_word

_DATABASE = "SELECT database_name FROM system.main.duckdb_databases() WHERE NOT internal"
_VIEWS = """
SELECT database_name, schema_name, view_name, sql FROM system.main.duckdb_views()
WHERE NOT internal
"""
_MACROS = """
SELECT database_name, schema_name, function_name, function_type, macro_definition
FROM system.main.duckdb_functions() WHERE NOT internal
"""
_RELATIONS = """
SELECT table_name FROM system.main.duckdb_tables() WHERE NOT internal
UNION ALL SELECT view_name FROM system.main.duckdb_views() WHERE NOT internal
"""
_FREE = """
SELECT database_name, free_blocks, block_size FROM system.main.pragma_database_size()
"""
_TABLES = "SELECT sql FROM system.main.duckdb_tables() WHERE NOT internal"


@dataclass(frozen=True)
class StoredObject:
    """A view or macro, with its SQL."""

    kind: str
    name: tuple[str, str, str]
    sql: str

    @property
    def quoted(self) -> str:
        return ".".join(quoted(part) for part in self.name)

    @property
    def query(self) -> str:
        """What it does, without its own name and those of its columns, as a SELECT.

        A PIVOT is no SELECT that the engine's parser would explain, and a macro may be none.
        """
        if self.kind == "MACRO":
            return f"SELECT {self.sql}"
        return after_word("as", self.sql) if self.kind == "VIEW" else self.sql


def quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def database(connection: Any) -> str:
    """What the engine calls the database; it took that from the name of the file."""
    # All of it: what is not read to its end keeps a transaction open.
    ((name,),) = connection.execute(_DATABASE).fetchall()
    return str(name)


def free_bytes(connection: Any, database_name: str) -> int:
    """What the last checkpoint left free within the file, to be written to first."""
    told = connection.execute(_FREE).fetchall()
    return sum(int(blocks * size) for name, blocks, size in told if name == database_name)


def stored(connection: Any) -> list[StoredObject]:
    """All views and macros that somebody made."""
    found = [
        StoredObject("VIEW", (database, schema, name), sql or "")
        for database, schema, name, sql in connection.execute(_VIEWS).fetchall()
    ]
    for database, schema, name, kind, sql in connection.execute(_MACROS).fetchall():
        told = "MACRO" if kind == "macro" else "MACRO TABLE"
        found.append(StoredObject(told, (database, schema, name), sql or ""))
    return found


def definitions(connection: Any) -> list[str]:
    """The SQL of all that stands in the catalog: views, macros, and tables with their defaults."""
    tables = [sql or "" for (sql,) in connection.execute(_TABLES).fetchall()]
    return [each.sql for each in stored(connection)] + tables


def drop(connection: Any, each: StoredObject) -> None:
    """May raise duckdb.Error, or what Python raises for a name that it cannot hold."""
    connection.execute(f"DROP {each.kind} IF EXISTS {each.quoted} CASCADE")


def relations(connection: Any) -> frozenset[str]:
    """The names of all tables and views."""
    return frozenset(name for (name,) in connection.execute(_RELATIONS).fetchall())
