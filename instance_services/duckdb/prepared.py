"""Owns prepared statements: what is asked again and again is planned once.

Parsing, binding and optimizing are most of what a small query costs. The engine keeps the plan of a
prepared statement, but it also keeps what it took from the data and from the clock while it
planned: with `WHERE i > 100` in a table whose largest `i` was 99, it goes on answering nothing
after 200 was inserted; and `localtimestamp` stands still. So a statement is prepared only while
nothing changes, and only where nothing in it, or in a view or macro, may mean something else the
next time.
"""

import contextlib
import re
from collections.abc import Iterable
from typing import Any

import duckdb

from instance_services.duckdb import catalog
from instance_services.duckdb.query_plans import QueryPlan

# Preparing takes as long as three to five small queries save by it.
_AFTER_RUNS = 10
# A prepared plan keeps what its last run held in memory, up to a megabyte or so where it groups or
# sorts: what works hard is not prepared, and few are.
_QUICK_S = 0.002
_KEPT = 16
# One that was not run for so many runs of others makes room; more would take turns for nothing.
_UNUSED_RUNS = 1000
_WORD = re.compile(r"\w+")
# What the catalogue does not tell: the clock in other words, and plans with a random seed. What is
# neither a letter nor printed counts as the blank that it may be to the engine.
_UNSTEADY = re.compile(
    r'\b(?:current_|localtime|(?:table)?sample\b|age\b"?[^\w!-~]*(?:\(|--|/\*))', re.IGNORECASE
)


class PreparedStatements:
    """The statements that one connection has prepared, each one SELECT; on its thread."""

    def __init__(self, connection: Any, unsteady: frozenset[str]) -> None:
        self._connection = connection
        # Functions whose result may be another the next time.
        self._unsteady = unsteady
        # By the name that the engine knows them under.
        self._plans: dict[str, QueryPlan] = {}
        # Whether views, macros and columns are all steady; None where that is not known.
        self._catalogue_is_steady: bool | None = None
        self._number = 0
        self._runs = 0

    def has_run(self, plan: QueryPlan, took_s: float) -> None:
        """Tells of a run; after enough quick ones in a row the plan is prepared."""
        plan.quick_runs = plan.quick_runs + 1 if took_s < _QUICK_S else 0
        self.touch(plan)
        if plan.quick_runs != _AFTER_RUNS or not self._has_room():
            return
        # What cannot be prepared is run as it is.
        with contextlib.suppress(duckdb.Error):
            self._prepare(plan)

    def touch(self, plan: QueryPlan) -> None:
        """Tells of a run, prepared or not: what is run keeps its place."""
        self._runs += 1
        plan.last_run = self._runs

    def _has_room(self) -> bool:
        if len(self._plans) < _KEPT:
            return True
        oldest = min(self._plans, key=lambda name: self._plans[name].last_run)
        if self._runs - self._plans[oldest].last_run <= _UNUSED_RUNS:
            return False
        self._drop(oldest)
        return True

    def _prepare(self, plan: QueryPlan) -> None:
        query = plan.last.query
        if self._is_unsteady([query]):
            return
        if self._catalogue_is_steady is None:
            found = catalog.definitions(self._connection)
            self._catalogue_is_steady = not self._is_unsteady(found)
        if not self._catalogue_is_steady:
            return
        self._number += 1
        name = f"menagerie_{self._number}"
        (statement,) = self._connection.extract_statements(f"PREPARE {name} AS\n{query}")
        self._connection.execute(statement)
        (plan.prepared,) = self._connection.extract_statements(f"EXECUTE {name}")
        self._plans[name] = plan

    def _is_unsteady(self, texts: Iterable[str]) -> bool:
        return any(
            _UNSTEADY.search(text) or not self._unsteady.isdisjoint(_WORD.findall(text.lower()))
            for text in texts
        )

    def forget(self, *, catalogue: bool) -> None:
        """To be called when data may have changed; with `catalogue`, also what is made of them."""
        if catalogue:
            self._catalogue_is_steady = None
        for name in list(self._plans):
            self._drop(name)

    def _drop(self, name: str) -> None:
        plan = self._plans.pop(name)
        plan.prepared, plan.quick_runs = None, 0
        with contextlib.suppress(duckdb.Error):
            self._connection.execute(f"DEALLOCATE {name}")
