"""Which organization a session is for: it reads and writes that one's records and no other's.

A request's session is for the organization of its path, or for none. What is asked of a tenant's
table is held to it, whatever the query says; where that cannot be done the statement is refused.
`across` lifts this for what has to look further, with the reason. Sessions of workers are for
every organization: nobody has called `restrict` for them.
"""

import functools
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Final
from weakref import WeakKeyDictionary

from sqlalchemy import Executable, Select, Table, TextClause, bindparam, event
from sqlalchemy.orm import ORMExecuteState, Session, with_loader_criteria
from sqlalchemy.sql.util import find_tables

from storage.columns import Owned, Record

_KEY: Final = "menagerie_tenancy"
ORG_ID: Final = "menagerie_org_id"
"""The parameter of a restricted query."""


class TenancyBroken(RuntimeError):  # noqa: N818 -- a fact about a query
    """A statement or a record of a request concerns another organization than the request's."""


_OF_NONE: Final = "the request has no organization"


@dataclass(frozen=True)
class _Held:
    org_id: str | None


def restrict(db: Session, org_id: str | None) -> None:
    """From now on the session is for this organization; None: it may touch no tenant's record."""
    # Where there is none, every statement on a tenant's table is refused, and nothing restricted.
    db.info[_KEY] = _Held(org_id)


# Built once, with the organization as a parameter: what it costs to make and to compare these for
# every statement is more than most queries take.
_OF_PARAMETER: Final = with_loader_criteria(
    Owned,
    # A name in place of its literal would be taken for a value that changes.
    lambda cls: cls.owner_id() == bindparam("menagerie_org_id", None),
    include_aliases=True,
    # What is loaded later by itself has no parameter, and is of a record found already.
    propagate_to_loaders=False,
)
# A query that is kept by who asks it is restricted once, and its restricted form kept with it.
_restricted: Final[WeakKeyDictionary[Executable, Executable]] = WeakKeyDictionary()


def _restrict_query(state: ORMExecuteState, org_id: str) -> None:
    form = _restricted.get(state.statement)
    if form is None:
        form = _restricted[state.statement] = state.statement.options(_OF_PARAMETER)
    state.statement = form
    given = state.parameters or {}
    assert isinstance(given, Mapping), "a query has one set of parameters"
    state.parameters = {**given, ORG_ID: org_id}


def _of_value(org_id: str) -> Any:
    """For what changes records, whose parameters are the values that it sets."""
    return with_loader_criteria(Owned, lambda cls: cls.owner_id() == org_id, include_aliases=True)


def owned_tables(statement: Any) -> frozenset[str]:
    """The tenants' tables that the statement is about."""
    return _owned_tables() & tables(statement)


def restriction(db: Session, touched: frozenset[str]) -> str | None:
    """The organization that a query of these tenants' tables is to be `restricted` to.

    None where it is not: it touches no tenant's table, or the session is for all of them.
    """
    held: _Held | None = db.info.get(_KEY)
    if held is None or not touched:
        return None
    if held.org_id is None:
        raise _refusal(touched, _OF_NONE)
    return held.org_id


def restricted(query: Select[Any]) -> Select[Any]:
    """The query of records, held to the organization that is its parameter `ORG_ID`."""
    return query.options(_OF_PARAMETER)


def _refusal(touched: frozenset[str], why: str) -> TenancyBroken:
    named = ", ".join(sorted(touched))
    return TenancyBroken(f"a statement on {named} cannot be held to one: {why}")


def is_for_none(db: Session) -> bool:
    """Whether the session is a request's that has no organization."""
    held = db.info.get(_KEY)
    return held is not None and held.org_id is None


@contextmanager
def across(db: Session, reason: str) -> Iterator[None]:
    """Look at every organization's records within the block. `reason` is for readers."""
    assert reason
    held = db.info.pop(_KEY, None)
    try:
        yield
    finally:
        if held is not None:
            db.info[_KEY] = held


@event.listens_for(Session, "do_orm_execute")
def _restrict(state: ORMExecuteState) -> None:
    held: _Held | None = state.session.info.get(_KEY)
    if held is None or state.is_column_load:
        return
    if state.is_orm_statement and not state.is_insert and held.org_id is not None:
        if state.is_select:
            _restrict_query(state, held.org_id)
        else:
            state.statement = state.statement.options(_of_value(held.org_id))
        return
    if isinstance(state.statement, TextClause):
        raise TenancyBroken("SQL as text cannot be held to an organization: use the records")
    touched = owned_tables(state.statement)
    if touched:
        why = "it is no query of records" if held.org_id else _OF_NONE
        raise _refusal(touched, why)


@event.listens_for(Session, "before_flush")
def _refuse_others(db: Session, _context: Any, _instances: Any) -> None:
    held: _Held | None = db.info.get(_KEY)
    if held is None:
        return
    for record in (*db.new, *db.dirty, *db.deleted):
        if isinstance(record, Owned):
            _check_owner(held, type(record), record.owner)


def check_owner(db: Session, kind: type[Record], values: Mapping[str, Any]) -> None:
    """Raises where a row of these values is not the organization's that the session is for."""
    held: _Held | None = db.info.get(_KEY)
    if held is not None and issubclass(kind, Owned):
        _check_owner(held, kind, values[kind.owner_id().key])


def _check_owner(held: _Held, kind: type[Any], owner: str | None) -> None:
    if owner != held.org_id:
        raise TenancyBroken(f"a {kind.__name__} of {owner} is written for {held.org_id}")


def tables(statement: Any) -> set[str]:
    found = find_tables(
        statement,
        check_columns=True,
        include_aliases=True,
        include_joins=True,
        include_selects=True,
        include_crud=True,
    )
    # A query is found as well, which has no name.
    return {str(name) for table in found if (name := getattr(table, "name", None)) is not None}


@functools.cache
def _owned_tables() -> frozenset[str]:
    """Every record is known once there is a database, so this does not change."""
    return frozenset(
        table.name
        for mapper in Record.registry.mappers
        if issubclass(mapper.class_, Owned)
        for table in mapper.tables
        if isinstance(table, Table)
    )
