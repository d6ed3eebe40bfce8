"""Owns query plans: what is learnt once of a SQL text, so that running it again costs less.

A query plan says which statements to run, and how the columns of the last one become JSON.
"""

import contextlib
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import duckdb

from instance_services.duckdb import statements, values
from instance_services.duckdb.refusals import Refusals

_KEPT = 512
_KEPT_LENGTH = 4096
_SCALARS = (str, int, float, bool, type(None))


@dataclass(slots=True)
class Columns:
    """How the columns of a result become JSON."""

    names: list[str]
    types: list[str]
    floats: list[int]
    converters: list[tuple[int, values.Convert]]

    @classmethod
    def of(cls, names: Sequence[str], kinds: Sequence[Any], rendered: Sequence[bool]) -> "Columns":
        converters = [
            (place, convert)
            for place, kind in enumerate(kinds)
            if (values.is_nested(kind) or not rendered[place]) and not values.is_float(kind)
            if (convert := values.converter(kind))
        ]
        floats = [place for place, kind in enumerate(kinds) if values.is_float(kind)]
        return cls(list(names), [str(kind) for kind in kinds], floats, converters)


@dataclass(slots=True)
class QueryPlan:
    """`last` is what answers; `columns` is None until it is known what it answers with."""

    first: list[Any]
    last: Any
    has_result: bool
    is_select: bool
    changes: bool
    keeps_types: bool
    begins: bool
    grows: bool
    changes_catalog: bool
    rendered: bool = False
    columns: Columns | None = None
    # Whether it may be run again as it is: it reads, and nothing but what is in its text.
    repeats: bool = False
    quick_runs: int = 0
    prepared: Any = None
    last_run: int = 0


class QueryPlans:
    """By SQL text and the classes of its parameters; of one connection, on its thread."""

    def __init__(self, connection: Any, refusals: Refusals) -> None:
        self._connection = connection
        self._refusals = refusals
        self._kept: OrderedDict[Any, QueryPlan] = OrderedDict()

    def forget(self) -> None:
        """To be called when types may have changed."""
        self._kept.clear()

    def of(self, sql: str, params: list[Any]) -> QueryPlan:
        """The plan of a text; raises Refused, or duckdb.Error for bad syntax."""
        key = (sql, *map(_class, params)) if params else sql
        plan = self._kept.get(key)
        if plan is not None:
            self._kept.move_to_end(key)
            return plan
        plan = self._make(sql, params)
        if plan.is_select and not plan.first and len(sql) <= _KEPT_LENGTH and _scalar(params):
            plan.repeats = not params
            self._kept[key] = plan
            if len(self._kept) > _KEPT:
                self._kept.popitem(last=False)
        return plan

    def _make(self, sql: str, params: list[Any]) -> QueryPlan:
        found = statements.split(self._connection, self._refusals, sql)
        plan = QueryPlan(
            first=found[:-1],
            last=found[-1],
            has_result=statements.has_result(found[-1]),
            is_select=statements.is_select(found[-1]),
            changes=statements.changes_rows(found[-1]),
            keeps_types=statements.keeps_types(found),
            begins=any(statement.type.name == "TRANSACTION" for statement in found),
            grows=any(statements.grows(statement) for statement in found),
            changes_catalog=any(statements.changes_catalog(statement) for statement in found),
        )
        # After other statements of the same request the types may be others than now.
        if not plan.first:
            self.learn(plan, params)
        return plan

    def learn(self, plan: QueryPlan, params: list[Any]) -> None:
        """For a last statement whose predecessors have been run."""
        # To tell of a thousand parameters too many takes the engine long; running it tells, too.
        if plan.is_select and len(plan.last.named_parameters) == len(params):
            # Where nothing is learnt, running the statement as it is tells the error.
            with contextlib.suppress(duckdb.Error):
                self._learn(plan, params)

    def _learn(self, plan: QueryPlan, params: list[Any]) -> None:
        """Asks the engine for the types without running the statement."""
        query = plan.last.query
        if params:
            empty = _around(query, "*") + " LIMIT 0"
            relation = self._connection.sql(empty, params=params)
        else:
            relation = self._connection.sql(plan.last)
        kinds, names = relation.types, relation.columns
        found = [values.expression(place, kind) for place, kind in enumerate(kinds, 1)]
        if not any(found):
            return
        if params:
            told = self._connection.execute(f"DESCRIBE {query}", params).fetchall()
            names = [row[0] for row in told]
        selected = ", ".join(text or f"#{place}" for place, text in enumerate(found, 1))
        (plan.last,) = self._connection.extract_statements(_around(query, selected))
        plan.columns = Columns.of(names, kinds, [text is not None for text in found])
        plan.rendered = True


def _around(query: str, selected: str) -> str:
    # The caller's SQL is the caller's to choose; the line breaks end a comment that it may end in.
    return f"SELECT {selected} FROM (\n{query}\n)"  # noqa: S608 - running SQL is what this is for


def _class(param: Any) -> Any:
    """What the engine takes a parameter for: a whole number's type is by its size."""
    if type(param) is int:
        return next((bits for bits in (31, 63) if -(1 << bits) <= param < 1 << bits), 64)
    return type(param)


def _scalar(params: list[Any]) -> bool:
    return all(isinstance(param, _SCALARS) for param in params)
