"""Owns an engine of the same version with nobody's data: what it has, and how it reads a text.

What decides about statements is asked there: in a tenant's database a macro or a view of the same
name is found before the engine's own, so an answer from it would be the tenant's.
"""

from typing import Any

import duckdb

# It parses texts of a megabyte at most, and holds nothing.
_CONFIG: dict[str, str | bool | int | float | list[str]] = {
    "threads": "1",
    "memory_limit": "64MB",
    "enable_external_access": "false",
    "python_enable_replacements": "false",
    "lock_configuration": "true",
}
_FUNCTIONS = """
SELECT function_name, function_type, stability FROM system.main.duckdb_functions() WHERE internal
"""
_STEADY_KINDS = ("scalar", "aggregate")
_UNSTEADY = ("VOLATILE", "CONSISTENT_WITHIN_QUERY")


class Reference:
    """One connection to an empty database in memory; used by one thread at a time."""

    def __init__(self) -> None:
        self._connection = self._opened()
        self._functions: list[tuple[str, str, str]] = [
            (name.lower(), kind, stability)
            for name, kind, stability in self._connection.execute(_FUNCTIONS).fetchall()
        ]

    def functions(self) -> frozenset[str]:
        return frozenset(name for name, kind, _ in self._functions if kind != "pragma")

    def unsteady_functions(self) -> frozenset[str]:
        """Those whose result may be another the next time, although nothing has changed."""
        return frozenset(
            name
            for name, kind, stability in self._functions
            if kind not in _STEADY_KINDS or stability in _UNSTEADY
        )

    def serialized(self, sql: str) -> str | None:
        """The text as it is parsed, in JSON; None for what is no SELECT, or cannot be parsed."""
        try:
            (text,) = self._connection.execute(
                "SELECT CAST(system.main.json_serialize_sql($1) AS VARCHAR)", [sql]
            ).fetchone()
        except duckdb.Error:
            # After some faults an engine answers nothing any more.
            self._connection.close()
            self._connection = self._opened()
            return None
        return text if text.startswith('{"error":false') else None

    @staticmethod
    def _opened() -> Any:
        return duckdb.connect(":memory:", config=_CONFIG)
