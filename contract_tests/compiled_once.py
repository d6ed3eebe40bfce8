"""Statements are compiled once for all databases of a kind, and not again for each test's own.

What SQLAlchemy has compiled belongs to a dialect, and each `Database` makes one of its own. To
compile takes a seventh of the time of tests that begin with a new database.
"""

from typing import Any, Final

from sqlalchemy import Connection, Engine, event

_SHARED: Final[dict[tuple[Any, ...], tuple[Any, Any]]] = {}


@event.listens_for(Engine, "engine_connect")
def _share(connection: Connection) -> None:
    """Of the first such engine, once it has seen its server."""
    engine = connection.engine
    dialect = engine.dialect
    alike = (dialect.name, dialect.driver, getattr(dialect, "server_version_info", None))
    shared = _SHARED.setdefault(alike, (dialect, engine._compiled_cache))
    engine.dialect, engine._compiled_cache = shared
    connection.dialect = engine.dialect
