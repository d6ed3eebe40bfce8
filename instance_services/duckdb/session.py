"""Owns the way of one request through the engine: run, fetch, render."""

import contextlib
import errno
import gc
import os
import time
from functools import partial
from typing import Any

import duckdb
import orjson

from instance_services.duckdb import catalog, memory, values
from instance_services.duckdb.allowance import Allowance
from instance_services.duckdb.durable import Changes, NoRoom
from instance_services.duckdb.errors import told
from instance_services.duckdb.prepared import PreparedStatements
from instance_services.duckdb.query_plans import Columns, QueryPlan, QueryPlans
from instance_services.duckdb.reference import Reference
from instance_services.duckdb.refusals import Refusals, StatementRefused

ROWS_MAX = 10_000

_WRITING = (duckdb.IOException, duckdb.TransactionException)
_NO_SPACE = os.strerror(errno.ENOSPC)


class Failed(Exception):  # noqa: N818 - the statement failed, the service did not
    """The statement could not be run; the text is for the client."""


class DiskFull(Failed):
    """The disk, not the statement, is at fault."""


class NotDurable(Failed):
    """What was changed could not be made to survive a crash: the engine must answer no more."""


_FULL_DISK = f"the disk is full: {_NO_SPACE}; this statement needs room for a checkpoint"
_NOT_DURABLE = (
    "the change could not be written to the database file; the engine is about to be restarted, and"
    " the change may be undone then; what was committed before is kept"
)


class Session:
    """Answers requests over one connection, each as if autocommit were all there is."""

    def __init__(self, connection: Any, allowance: Allowance) -> None:
        self._connection = connection
        self._allowance = allowance
        reference = Reference()
        refusals = Refusals(connection, reference)
        refusals.check_stored()
        self._plans = QueryPlans(connection, refusals)
        self._prepared = PreparedStatements(connection, reference.unsteady_functions())
        self._changes = Changes(connection, allowance.database)
        self._free_bytes = partial(catalog.free_bytes, connection, catalog.database(connection))
        # Of the statement that runs now: whether it may grow the database, and why it was ended.
        self._growing = False
        self._full: str | None = None

    def answer(self, sql: str, params: list[Any]) -> bytes:
        """The answer as JSON; Failed where the statement is at fault."""
        started = time.perf_counter()
        plan = None
        self._full = None
        try:
            plan = self._plans.of(sql, params)
            return self._run(plan, params, started)
        except StatementRefused as error:
            raise Failed(str(error)) from None
        except NoRoom:
            raise DiskFull(_FULL_DISK) from None
        except duckdb.InterruptException as error:
            if self._full is not None:
                raise Failed(self._full) from error
            raise Failed(str(error)) from error
        except Exception as error:
            if isinstance(error, _WRITING) and _NO_SPACE in str(error):
                raise DiskFull(self._told(error, plan)) from error
            # A value that Python cannot hold or a parameter it cannot pass is no duckdb.Error.
            raise Failed(self._told(error, plan)) from error
        finally:
            if plan is not None:
                self._tidy(plan)

    def overgrows(self) -> bool:
        """Whether what runs now must be ended for the storage that it takes."""
        if self._allowance.exceeded() if self._growing else self._allowance.overspilled():
            self._full = self._allowance.refusal()
        return self._full is not None

    def _told(self, error: Exception, plan: QueryPlan | None) -> str:
        rendered = plan is not None and plan.rendered
        return told(error, self._allowance.directory, rendered=rendered)

    def _tidy(self, plan: QueryPlan) -> None:
        self._growing = False
        if plan.first or not plan.is_select:
            self._prepared.forget(catalogue=not plan.keeps_types)
        if not plan.keeps_types:
            self._plans.forget()
        if plan.begins:
            self._end_transaction()
        try:
            self._changes.end()
        except (duckdb.Error, OSError) as error:
            raise NotDurable(_NOT_DURABLE) from error

    def _end_transaction(self) -> None:
        """One that is still open would swallow, or fail, the requests of others."""
        ended = False
        with contextlib.suppress(duckdb.Error):
            while not ended:
                # An interrupt that comes late breaks off a rollback as well.
                with contextlib.suppress(duckdb.InterruptException):
                    self._connection.rollback()
                    ended = True

    def _run(self, plan: QueryPlan, params: list[Any], started: float) -> bytes:
        self._allowance.begin(self._free_bytes, grows=plan.grows)
        if plan.grows:
            self._allowance.check()
            self._growing = True
        if plan.changes_catalog:
            self._changes.begin()
        connection = self._connection
        if plan.first:
            for statement in plan.first:
                connection.execute(statement)
            self._plans.learn(plan, params)
        if plan.has_result and plan.changes:
            return self._run_relation(plan, params, started)
        if plan.prepared is not None and (answer := self._run_prepared(plan, started)):
            return answer
        connection.execute(plan.last, params or None)
        if not plan.has_result:
            return _encode(_NO_COLUMNS, [], started, changed=_count(connection.fetchall()))
        columns = plan.columns
        if columns is None:
            columns = plan.columns = _described(connection)
        answer = self._answer_of(columns, started)
        if plan.repeats:
            self._prepared.has_run(plan, time.perf_counter() - started)
        return answer

    def _run_prepared(self, plan: QueryPlan, started: float) -> bytes | None:
        """None where it failed: the statement itself tells why in the words of its own text."""
        self._prepared.touch(plan)
        try:
            self._connection.execute(plan.prepared)
            return self._answer_of(plan.columns or _NO_COLUMNS, started)
        except duckdb.InterruptException:
            raise
        except duckdb.Error:
            self._prepared.forget(catalogue=True)
            return None

    def _answer_of(self, columns: Columns, started: float) -> bytes:
        answer, is_cut = _fetched(self._connection, columns, started)
        if is_cut:
            # A result that is not read to its end keeps its transaction and its memory.
            self._connection.execute("SELECT 1").fetchall()
        return answer

    def _run_relation(self, plan: QueryPlan, params: list[Any], started: float) -> bytes:
        """A statement that may run only once, and whose types are known only then."""
        relation = self._connection.sql(plan.last, params=params or None)
        if relation is None:
            return _encode(_NO_COLUMNS, [], started, changed=0)
        names, kinds = relation.columns, relation.types
        found = [values.expression(place, kind) for place, kind in enumerate(kinds, 1)]
        if any(found):
            relation = relation.project(
                ", ".join(text or f"#{place}" for place, text in enumerate(found, 1))
            )
        columns = Columns.of(names, kinds, [text is not None for text in found])
        return _fetched(relation, columns, started)[0]


def _count(told: list[Any]) -> int:
    """How many rows were changed; some statements tell only that they succeeded."""
    count = told[0][0] if told else 0
    return count if type(count) is int else 0


_NO_COLUMNS = Columns([], [], [], [])


def _described(connection: Any) -> Columns:
    told = connection.description
    kinds = [column[1] for column in told]
    return Columns.of([column[0] for column in told], kinds, [False] * len(kinds))


def _fetched(source: Any, columns: Columns, started: float) -> tuple[bytes, bool]:
    """The answer, and whether there was more than it holds."""
    # Rows are made by the thousand and hold no cycles: looking for some takes a tenth of the time.
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        rows = source.fetchmany(ROWS_MAX + 1)
        return _encode(columns, rows, started), len(rows) > ROWS_MAX
    finally:
        if was_enabled:
            gc.enable()


def _encode(
    columns: Columns, rows: list[Any], started: float, *, changed: int | None = None
) -> bytes:
    truncated = len(rows) > ROWS_MAX
    if truncated:
        rows = rows[:ROWS_MAX]
    memory.check_writing(rows)
    if columns.converters:
        rows = _converted(rows, columns.converters)
    document = {
        "columns": columns.names,
        "column_types": columns.types,
        "rows": rows,
        "row_count": len(rows) if changed is None else changed,
        "truncated": truncated,
        "elapsed_ms": round((time.perf_counter() - started) * 1000, 3),
    }
    answer = orjson.dumps(document, default=values.fallback)
    # orjson writes null for NaN and the infinities: only an answer that holds a null is searched.
    if columns.floats and b"null" in answer:
        document["rows"] = _converted(rows, [(place, values.finite) for place in columns.floats])
        answer = orjson.dumps(document, default=values.fallback)
    return answer


def _converted(rows: list[Any], converters: list[tuple[int, values.Convert]]) -> list[Any]:
    if not rows:
        return rows
    columns = list(zip(*rows, strict=True))
    for place, convert in converters:
        columns[place] = tuple(
            None if value is None else convert(value) for value in columns[place]
        )
    return list(zip(*columns, strict=True))
