"""Tells how SQLite goes about queries."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from sqlalchemy import event
from sqlalchemy.orm import Session


@contextmanager
def query_plans(db: Session) -> Iterator[list[str]]:
    """How SQLite goes about each query of the session: whether it reads a table, and by what."""
    found: list[str] = []

    def explain(connection: Any, cursor: Any, statement: str, parameters: Any, *_: Any) -> None:
        if statement.startswith("SELECT"):
            told = connection.connection.cursor()
            told.execute(f"EXPLAIN QUERY PLAN {statement}", parameters)
            steps = [row[-1] for row in told.fetchall()]
            # Lists of parameters are tables too.
            found.extend(
                step
                for step in steps
                if step.startswith(("SCAN", "SEARCH")) and "json_each" not in step
            )

    if db.get_bind().dialect.name != "sqlite":
        yield found
        return
    event.listen(db.connection(), "before_cursor_execute", explain)
    yield found
    assert found
