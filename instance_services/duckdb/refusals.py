"""Owns what is not offered: kinds of statements, and functions, by the statement as it is parsed.

What is offered is listed and the rest is refused, so that a new version of the engine brings
nothing in unseen: kinds of statements here, functions in `functions.txt`.
"""

import re
from pathlib import Path
from typing import Any

from instance_services.duckdb import catalog, paths
from instance_services.duckdb.reference import Reference
from instance_services.duckdb.stored import REQUEST_S, START_S, Stored
from instance_services.duckdb.tokens import tokens, words

OFFERED = frozenset(
    Path(__file__).with_name("functions.txt").read_text(encoding="utf-8").splitlines()
)
STATEMENTS = frozenset(
    {"ALTER", "ANALYZE", "CALL", "CREATE", "DELETE", "DROP", "EXPLAIN", "INSERT", "MERGE_INTO"}
    | {"SELECT", "SET", "TRANSACTION", "UPDATE", "VACUUM"}
)
# Those that only ask; the engine makes a SELECT of them, and may already act as it does so.
PRAGMAS = frozenset(
    {"collations", "database_list", "database_size", "functions", "metadata_info", "platform"}
    | {"show", "show_databases", "show_tables", "show_tables_expanded", "storage_info"}
    | {"table_info", "user_agent", "version"}
)
_NO_FILES = "the engine has no access to files"
_WHY_STATEMENT = {
    "ATTACH": "ATTACH is not supported",
    "COPY": f"COPY is not supported; {_NO_FILES}",
    "COPY_DATABASE": f"COPY is not supported; {_NO_FILES}",
    "DETACH": "DETACH is not supported",
    "EXECUTE": "PREPARE and EXECUTE are not supported; use params",
    "EXPORT": f"EXPORT is not supported; {_NO_FILES}",
    "EXTENSION": "extensions are not supported",
    "LOAD": "extensions are not supported",
    "PRAGMA": "this PRAGMA is not supported",
    "PREPARE": "PREPARE and EXECUTE are not supported; use params",
}
_WHY_FUNCTION = (
    (re.compile("query$"), "send its SQL itself"),
    (re.compile("query_table"), "write the name of the table itself"),
    (re.compile("json_(execute|serialize)"), "send the SQL itself"),
    (re.compile("read_|parquet_|glob|sniff_"), _NO_FILES),
    (re.compile("checkpoint|force_checkpoint"), "use the statement CHECKPOINT"),
    (re.compile("profiling"), "use EXPLAIN ANALYZE"),
    (re.compile("json_transform|from_json"), "cast instead: x::JSON::STRUCT(a INTEGER)"),
    (re.compile("json_contains"), "use json_exists, or cast to a LIST"),
    (re.compile("json_(group_)?structure"), "use json_keys and json_type"),
)
# EXPLAIN ANALYZE runs what follows it, so what follows must be something that could be run.
_EXPLAINED = frozenset(
    {"create", "delete", "describe", "from", "insert", "merge", "pivot", "select", "show"}
    | {"summarize", "table", "unpivot", "update", "values", "with", "("}
)
_WORD = re.compile(r"\w+")
# Each function of a serialized statement; a quote within a text is escaped there, so no text of
# the statement looks like this.
_SERIALIZED = re.compile(r'"function_name":"((?:[^"\\]|\\.)*)"')
# What is neither a letter nor printed counts as the blank that it may be to the engine.
_CALL = r'\b{}\b"?[^\w!-~]*(?:\(|--|/\*)'
_BLANKS = re.compile(r"[^\w\x00-\x7f]")
# What the cell asks to see that the engine answers, and what ends the trouble.
_HARMLESS = re.compile(r"\s*+(?:SELECT\s++1|CHECKPOINT|DROP\s[^;]*+)\s*+;?\s*+", re.IGNORECASE)
_LASTING = frozenset({"macro", "function", "sequence", "type"})
_TEMPORARY = frozenset({"temp", "temporary"})
_BEFORE_A_TABLE = frozenset({"exists", "into", "references", "table", "view"})


class StatementRefused(Exception):  # noqa: N818 - an answer to the client and not a fault
    """The text holds a statement that this service does not run."""


class Refusals:
    """What one connection's engine has and is not offered."""

    def __init__(self, connection: Any, reference: Reference) -> None:
        self._connection = connection
        self._reference = reference
        self._database = catalog.database(connection)
        self._refused = reference.functions() - OFFERED
        self._stored = Stored(connection, self._is_refused)

    def check_text(self, sql: str) -> None:
        """To be called before the engine parses the text for good: it may act as it does so."""
        if "\0" in sql:
            raise StatementRefused("the SQL contains a NUL character")
        if name := self._calls(sql):
            raise StatementRefused(f"the function {name} is not supported{_why(name)}")
        if "pragma" in sql.lower() or "import" in sql.lower():
            _check_starts(sql)
        if (path := self._path_read(sql)) is not None:
            raise StatementRefused(f"{path!r} is not a table; {_NO_FILES}")
        if self._stored.blocked and not _HARMLESS.fullmatch(sql):
            self._stored.check(REQUEST_S)
            if self._stored.blocked:
                raise StatementRefused(self._stored.blocked)
        if why := self._stored.why_full(sql):
            raise StatementRefused(why)

    def check(self, statement: Any, sql: str) -> None:
        """Refuses by the kind of a parsed statement, which is one of the text's."""
        name = statement.type.name
        if name not in STATEMENTS:
            raise StatementRefused(_WHY_STATEMENT.get(name, f"{name} is not supported"))
        check = _CHECKS.get(name)
        if check is None:
            return
        found = [word.lower() for word in words(statement.query)]
        if name == "CREATE" and not found:
            # Made by the engine of a PIVOT without IN, and of more: it does not say of what.
            for part in _parts([word.lower() for word in words(sql)]):
                if part[0] == "create":
                    _check_create(part, self._database.lower())
        else:
            check(found, self._database.lower())

    def check_stored(self) -> None:
        """At a start: drops views and macros that use what is refused, and never raises."""
        self._stored.check(START_S)

    def _is_refused(self, each: catalog.StoredObject) -> bool:
        """Not for a path: the engine reads no file, and a table may have that name again."""
        return self._calls(each.sql) is not None and self._calls(each.query) is not None

    def _path_read(self, sql: str) -> str | None:
        """The path of a file that stands where a table would."""
        if not paths.may_be_in(sql):
            return None
        serialized = self._reference.serialized(sql)
        found = paths.parsed(serialized) if serialized else paths.by_tokens(sql)
        if not found:
            # To look for the names of tables costs more than all the rest.
            return None
        return min(found.difference(catalog.relations(self._connection)), default=None)

    def _calls(self, sql: str) -> str | None:
        """A function that is called in the text and not offered."""
        mentioned = self._refused.intersection(_WORD.findall(sql.lower()))
        return self._called(sql, mentioned) if mentioned else None

    def _called(self, sql: str, mentioned: frozenset[str]) -> str | None:
        """Which of the functions mentioned in the text is called in it."""
        serialized = self._reference.serialized(sql)
        if serialized is not None:
            called = {name.lower() for name in _SERIALIZED.findall(serialized)}
        elif _BLANKS.search(sql):
            # Which of these are blanks to the engine is the engine's to know.
            called = {
                name
                for name in mentioned
                if re.search(_CALL.format(re.escape(name)), sql, re.IGNORECASE)
            }
        else:
            called = _called_by_tokens([word.lower() for word in tokens(sql)], mentioned)
        return min(called & mentioned, default=None)


def _why(name: str) -> str:
    return next((f"; {why}" for pattern, why in _WHY_FUNCTION if pattern.match(name)), "")


def _called_by_tokens(found: list[str], names: frozenset[str]) -> set[str]:
    """Those that stand before a parenthesis, but where a table or a view is made or filled."""
    called = set()
    begin = 0
    for place, word in enumerate(found[:-1]):
        if word == ";":
            begin = place + 1
        name = word.strip('"')
        if name in names and found[place + 1] == "(" and not _is_a_table(found, begin, place):
            called.add(name)
    return called


def _is_a_table(found: list[str], begin: int, place: int) -> bool:
    # A database and a schema may stand before the name.
    for _ in range(2):
        if place - 2 >= begin and found[place - 1] == ".":
            place -= 2
    before = found[place - 1] if place > begin else ""
    if before == "on":
        return found[begin] == "create" and "index" in found[begin + 1 : begin + 3]
    return before in _BEFORE_A_TABLE


def _parts(found: list[str]) -> list[list[str]]:
    """The words of each statement of a text."""
    ends = [place for place, word in enumerate(found) if word == ";"] + [len(found)]
    begins = [0, *(end + 1 for end in ends[:-1])]
    return [found[a:b] for a, b in zip(begins, ends, strict=True) if a < b]


def _check_starts(sql: str) -> None:
    """Refuses what the engine would act on while it parses."""
    found = [word.lower() for word in tokens(_BLANKS.sub(" ", sql))]
    for place, word in enumerate(found[:-1]):
        if place > 0 and found[place - 1] != ";":
            continue
        if word == "pragma" and found[place + 1].strip('"') not in PRAGMAS:
            raise StatementRefused("this PRAGMA is not supported")
        if word == "import":
            raise StatementRefused(f"IMPORT is not supported; {_NO_FILES}")


def _check_call(found: list[str], database: str) -> None:
    rest = found[1:] if found[:1] == ["force"] else found
    if rest[:1] != ["checkpoint"]:
        raise StatementRefused("CALL is not supported; use SELECT … FROM the function")
    # The others have no storage, and asking them for a checkpoint breaks the engine for good.
    if [word.strip('"') for word in rest[1:] if word != ";"] not in ([], [database]):
        raise StatementRefused("CHECKPOINT is supported without a name only")


def _check_set(found: list[str], database: str) -> None:  # noqa: ARG001 - as the others
    if not found:
        # No text of the client's: to add such a column the engine changes a setting on its way.
        raise StatementRefused(
            "ADD COLUMN with a computed DEFAULT cannot be part of a transaction; send it as a"
            " request of its own"
        )
    if found[0] == "use" and found[1:2] and found[1].strip('"') == "temp":
        raise StatementRefused(
            "USE of the database temp is not supported; write TEMP TABLE or TEMP VIEW"
        )
    rest = [word for word in found[1:3] if word not in ("session", "local", "global")]
    if found[:1] != ["use"] and rest[:1] != ["variable"]:
        raise StatementRefused("settings are locked; only variables can be set: SET VARIABLE x = 1")


def _check_create(found: list[str], database: str) -> None:  # noqa: ARG001 - as the others
    """What tables and indexes can be made of must not end with the process before they do."""
    plain = [word.strip('"') for word in found]
    kind = 3 if plain[1:3] == ["or", "replace"] else 1
    kind += plain[kind] in _TEMPORARY
    if plain[kind] not in _LASTING:
        return
    name = kind + 4 if plain[kind + 1 : kind + 4] == ["if", "not", "exists"] else kind + 1
    if _TEMPORARY & set(found[1:kind]) or plain[name : name + 2] == ["temp", "."]:
        raise StatementRefused(
            f"a temporary {plain[kind].upper()} is not supported; create it without TEMP,"
            " because objects that are created from it are permanent"
        )


def _check_alter(found: list[str], database: str) -> None:  # noqa: ARG001 - as the others
    if found[:2] == ["alter", "database"]:
        raise StatementRefused("ALTER DATABASE is not offered")


def _check_explain(found: list[str], database: str) -> None:  # noqa: ARG001 - as the others
    if not found:
        raise StatementRefused(
            "EXPLAIN of a PIVOT without its values is not supported; list them: PIVOT t ON a IN"
            " (1, 2)"
        )
    place = 0
    while place < len(found) and found[place] in ("explain", "analyze", "verbose"):
        place += 1
        if found[place : place + 1] == ["("] and found[place + 1] not in _EXPLAINED:
            # Options, as in EXPLAIN (ANALYZE, FORMAT json).
            place = found.index(")", place) + 1
    first = found[place] if place < len(found) else ""
    if first not in _EXPLAINED:
        raise StatementRefused(f"EXPLAIN {first.upper()} is not supported")


_CHECKS = {
    "ALTER": _check_alter,
    "CALL": _check_call,
    "CREATE": _check_create,
    "EXPLAIN": _check_explain,
    "SET": _check_set,
}
