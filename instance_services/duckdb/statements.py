"""Owns what a request's SQL text is: its statements, which of them are refused, and why."""

import re
from collections.abc import Iterator, Sequence
from typing import Any

import duckdb

# Settings are locked, but these act without a setting, or on paths that the engine must keep open
# for itself: COPY could write over the database file, ATTACH could fill the temporary directory.
_REFUSED = {
    "ATTACH": "attaching databases is not offered",
    "CALL": "CALL is not offered; table functions can be selected from",
    "COPY": "COPY is not offered; the engine reaches no files",
    "COPY_DATABASE": "COPY is not offered; the engine reaches no files",
    "DETACH": "detaching databases is not offered",
    "EXECUTE": "PREPARE and EXECUTE are not offered; use params",
    "EXPORT": "EXPORT is not offered; the engine reaches no files",
    "EXTENSION": "extensions are not offered",
    "LOAD": "extensions are not offered",
    "LOGICAL_PLAN": "logical plans are not offered",
    "PRAGMA": "this PRAGMA is not offered",
    "PREPARE": "PREPARE and EXECUTE are not offered; use params",
    "UPDATE_EXTENSIONS": "extensions are not offered",
}
# After one of these, what was learnt of the types of other statements still holds.
_KEEPS_TYPES = frozenset({"SELECT", "INSERT", "UPDATE", "DELETE", "MERGE_INTO", "EXPLAIN"})
# What may grow the database; the rest is always allowed, or a full database could not be emptied.
_GROWS = frozenset({"INSERT", "UPDATE", "MERGE_INTO", "CREATE", "ALTER"})
_RETURNS = frozenset({"INSERT", "UPDATE", "DELETE", "MERGE_INTO"})
# EXPLAIN ANALYZE runs what follows it, so what follows must be something that could be run.
_EXPLAINED = frozenset(
    {"create", "delete", "describe", "from", "insert", "merge", "pivot", "select", "show"}
    | {"summarize", "table", "unpivot", "update", "values", "with", "("}
)
# Functions that no lock of the engine holds back. The first follow numbers as if they were
# addresses in this process; the next two run SQL that is put together only while it is bound, where
# nothing can look at it; the last breaks the engine for good. They are looked for in the raw text,
# strings and comments included: whoever finds them where the engine reads none refuses too much,
# and whoever reads the text otherwise than the engine does lets something through.
_FORBIDDEN = re.compile(
    r"\b(arrow_scan|arrow_scan_dumb|pandas_scan|python_map_function"
    r"|json_execute_serialized_sql|enable_logging)\b",
    re.IGNORECASE,
)
# A word so common that it is refused only where it is called; what is neither a letter nor printed
# counts as the blank it may be to the engine. What stands before it is looked for by hand, as a
# pattern that begins with any word and any gap takes the square of the text's length.
_QUERY_CALL = re.compile(r'\bquery\b"?[^\w!-~]*(?:\(|--|/\*)', re.IGNORECASE)
_LAST_WORD = re.compile(r"\w{0,16}\Z")
_NAMED_NOT_CALLED = frozenset({"as", "exists", "into", "recursive", "table", "with"})
_WORD = re.compile(rb'"(?:[^"]|"")*"|\w+|.', re.DOTALL)
_CHECKPOINT = re.compile(r"\s*(?:force\s+)?checkpoint\b", re.IGNORECASE)


class Refused(Exception):  # noqa: N818 - an answer to the client and not a fault
    """The text holds a statement that this service does not run."""


def split(connection: Any, sql: str) -> list[Any]:
    """The statements of the text; Refused for what is not offered, duckdb.Error for bad syntax."""
    if "\0" in sql:
        raise Refused("the SQL holds a NUL character, at which the engine would stop reading")
    _refuse_forbidden(sql)
    statements: list[Any] = connection.extract_statements(sql)
    if not statements:
        raise Refused("the request holds no statement")
    for statement in statements:
        _check(statement)
    return statements


def keeps_types(statements: Sequence[Any]) -> bool:
    return all(statement.type.name in _KEEPS_TYPES for statement in statements)


def grows(statement: Any) -> bool:
    name = statement.type.name
    # EXPLAIN ANALYZE does what it explains.
    return name in _GROWS or (name == "EXPLAIN" and _analyzes(statement.query))


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


def words(sql: str) -> Iterator[str]:
    """The text's tokens without comments; a string constant is cut to its first character."""
    # The tokenizer counts in bytes.
    text = sql.encode()
    for start, kind in duckdb.tokenize(sql):
        match = None if kind == duckdb.token_type.comment else _WORD.match(text, start)
        if match:
            yield match.group().decode(errors="replace")


def _check(statement: Any) -> None:
    name = statement.type.name
    if name == "CALL" and _CHECKPOINT.match(statement.query):
        return
    if name in _REFUSED:
        raise Refused(_REFUSED[name])
    if name == "EXPLAIN":
        _check_explained(statement.query)


def _analyzes(sql: str) -> bool:
    return "analyze" in (word.lower() for word in words(sql))


def _check_explained(sql: str) -> None:
    tokens = [word.lower() for word in words(sql)]
    place = 0
    while place < len(tokens) and tokens[place] in ("explain", "analyze", "verbose"):
        place += 1
        if tokens[place : place + 1] == ["("] and tokens[place + 1] not in _EXPLAINED:
            # Options, as in EXPLAIN (ANALYZE, FORMAT json).
            place = tokens.index(")", place) + 1
    first = tokens[place] if place < len(tokens) else ""
    if first not in _EXPLAINED:
        raise Refused(f"EXPLAIN {first.upper()} is not offered")


def _refuse_forbidden(sql: str) -> None:
    found = _FORBIDDEN.search(sql)
    if found:
        name = found.group(1).lower()
        raise Refused(f"{name} is not offered; a text that holds this word is passed in params")
    behind = 0
    for call in _QUERY_CALL.finditer(sql):
        if _word_before(sql, behind, call.start()) not in _NAMED_NOT_CALLED:
            raise Refused("the function query is not offered; send its SQL itself")
        behind = call.end()


def _word_before(sql: str, start: int, end: int) -> str:
    """The word before `end`, lower case; empty where a quote comes first, or there is none."""
    place = end
    while place > start and not (sql[place - 1] == "_" or sql[place - 1].isalnum()):
        if sql[place - 1] == '"':
            return ""
        place -= 1
    found = _LAST_WORD.search(sql, max(start, place - 17), place)
    return found.group().lower() if found else ""
