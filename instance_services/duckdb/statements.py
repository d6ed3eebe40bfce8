"""Owns what a request's SQL text is: its statements, and what each of them does."""

from collections.abc import Sequence
from typing import Any

from instance_services.duckdb.refusals import Refusals, StatementRefused
from instance_services.duckdb.tokens import words

# After one of these, what was learnt of the types of other statements still holds.
_KEEPS_TYPES = frozenset({"SELECT", "INSERT", "UPDATE", "DELETE", "MERGE_INTO", "EXPLAIN"})
# What may grow the database; the rest is always allowed, or a full database could not be emptied.
_GROWS = frozenset({"INSERT", "UPDATE", "MERGE_INTO", "CREATE", "ALTER"})
# What the engine writes to its log and cannot always read again. A DROP it can, and that must work
# where there is no room for a checkpoint.
_CHANGES_CATALOG = frozenset({"ALTER", "CREATE"})
_RETURNS = frozenset({"INSERT", "UPDATE", "DELETE", "MERGE_INTO"})


def split(connection: Any, refusals: Refusals, sql: str) -> list[Any]:
    """The statements of the text.

    StatementRefused for what is not offered, duckdb.Error for bad syntax.
    """
    refusals.check_text(sql)
    statements: list[Any] = connection.extract_statements(sql)
    if not statements:
        raise StatementRefused("the request contains no statement")
    for statement in statements:
        refusals.check(statement, sql)
    return statements


def keeps_types(statements: Sequence[Any]) -> bool:
    return all(statement.type.name in _KEEPS_TYPES for statement in statements)


def grows(statement: Any) -> bool:
    name = statement.type.name
    # EXPLAIN ANALYZE does what it explains.
    return name in _GROWS or (name == "EXPLAIN" and _analyzes(statement.query))


def changes_catalog(statement: Any) -> bool:
    name = statement.type.name
    return name in _CHANGES_CATALOG or (name == "EXPLAIN" and _analyzes(statement.query))


def is_select(statement: Any) -> bool:
    return bool(statement.type.name == "SELECT")


def changes_rows(statement: Any) -> bool:
    return statement.type.name in _RETURNS


def has_result(statement: Any) -> bool:
    """Whether the statement answers rows; the others answer how many rows they changed."""
    if statement.type.name in _RETURNS:
        return "returning" in (word.lower() for word in words(statement.query))
    if statement.type.name == "CALL":
        return False
    return [kind.name for kind in statement.expected_result_type] == ["QUERY_RESULT"]


def _analyzes(sql: str) -> bool:
    return "analyze" in (word.lower() for word in words(sql))
