"""Statements of requests, again and again the same: written once, and sent by the driver itself.

SQLAlchemy writes them, and names the types of their parameters and columns. What it makes anew of
each execution (a cache key, a context, a result, loaders of every column) costs two to five times
what the statement itself does, and is left out. The rest holds here too: they are held to the
organization of the session, see what it has not written yet, fail with SQLAlchemy's errors, and
are told to whoever listens to `before_cursor_execute`.
"""

import functools
from collections import namedtuple
from collections.abc import Callable, Sequence
from typing import Any, Final, NamedTuple, TypeVar

from sqlalchemy import Connection, Dialect, Insert, Select, insert
from sqlalchemy.exc import DBAPIError
from sqlalchemy.orm import Session, make_transient_to_detached
from sqlalchemy.sql.compiler import SQLCompiler
from sqlalchemy.types import TypeEngine

from storage import tenancy
from storage.columns import Record

WRITING: Final = "menagerie_writing"
"""In a session's `info`: False where it only reads."""
Convert = Callable[[Any], Any]
Fetched = TypeVar("Fetched")


class Prepared:
    """A query of records, or of columns of records; its parameters are given by name.

    It has `columns.is_among` in place of an `IN` with a list.
    """

    def __init__(self, query: Select[*tuple[Any, ...]]) -> None:
        self._query = query
        self._forms: dict[tuple[str, bool], _Form] = {}

    def rows(self, db: Session, **given: Any) -> list[Any]:
        """Tuples; with names where there are columns only."""
        org_id = tenancy.restriction(db, self._owned)
        if self._reads_tables and db.autoflush:
            db.flush()
        connection = db.connection()
        form = self._form(connection.dialect, org_id is not None)
        if org_id is not None:
            given[tenancy.ORG_ID] = org_id
        return form.read(db, send(connection, form.sql, form.parameters(given), form.fetch))

    def one_or_none(self, db: Session, **given: Any) -> Any:
        """The only row there is."""
        found = self.rows(db, **given)
        assert len(found) <= 1, "the query finds one row at most"
        return found[0] if found else None

    @functools.cached_property
    def _owned(self) -> frozenset[str]:
        return tenancy.owned_tables(self._query)

    @functools.cached_property
    def _reads_tables(self) -> bool:
        return bool(tenancy.tables(self._query))

    def _form(self, dialect: Dialect, restricted: bool) -> "_Form":
        form = self._forms.get((dialect.name, restricted))
        if form is None:
            form = _Form(self._query, dialect, restricted=restricted)
            self._forms[dialect.name, restricted] = form
        return form


class Insertion:
    """Rows of one kind of record, which are in no session: nothing is done with them any more.

    They are written at once, before what the session has not written yet. What `statement` makes
    of a dialect's name is asked where more than an INSERT of the values is wanted.
    """

    def __init__(
        self, kind: type[Record], statement: Callable[[str], Insert] | None = None
    ) -> None:
        self._kind = kind
        self._statement = statement or (lambda _dialect: insert(kind).inline())
        self._forms: dict[tuple[str, ...], _InsertForm] = {}

    def write(self, db: Session, **values: Any) -> Any:
        """Gives the first of what is returned, where the statement returns anything."""
        if db.info.get(WRITING) is False:
            raise RuntimeError(f"a read session was asked to write a {self._kind.__name__}")
        tenancy.check_owner(db, self._kind, values)
        connection = db.connection()
        given = self._defaults | values
        place = (connection.dialect.name, *given)
        form = self._forms.get(place)
        if form is None:
            form = self._forms[place] = self._form(connection.dialect, given)
        return send(connection, form.sql, form.parameters.of(given), form.fetch)

    @functools.cached_property
    def _defaults(self) -> dict[str, Any]:
        columns = self._kind.__table__.columns
        return {each.key: each.default.arg for each in columns if _is_constant(each.default)}

    def _form(self, dialect: Dialect, given: dict[str, Any]) -> "_InsertForm":
        statement = self._statement(dialect.name)
        # One that selects what it inserts names its parameters itself.
        keys = None if statement.select is not None else list(given)
        compiled = statement.compile(dialect=dialect, column_keys=keys)
        assert isinstance(compiled, SQLCompiler)
        assert not compiled.prefetch, "what Python makes of a column is to be given"
        parameters = _Parameters(compiled, frozenset(given), dialect)
        return _InsertForm(compiled.string, parameters, self._fetch(compiled, dialect))

    def _fetch(self, compiled: SQLCompiler, _dialect: Dialect) -> Convert:
        return _first if compiled.effective_returning else _nothing


class RecordInsertion(Insertion):
    """New records of one kind, which are the session's from then on, as if it had written them."""

    def __init__(self, kind: type[Record]) -> None:
        super().__init__(kind, lambda _dialect: insert(kind).inline().returning(*self._made))
        columns = kind.__table__.columns
        # The clock's, which only the database can tell.
        self._made = [each for each in columns if getattr(each.default, "is_clause_element", False)]
        self._given = [each.key for each in columns if each not in set(self._made)]
        self._unset = {each.key: None for each in columns if each.default is None} | self._defaults

    def add(self, db: Session, record: Record) -> None:
        """Written at once, before what the session has not written yet.

        Raises KeyError for a value that is not given, and would be made of others.
        """
        given = record.__dict__
        values = {name: given[name] if name in given else self._unset[name] for name in self._given}
        returned = self.write(db, **values)
        values.update((each.key, found) for each, found in zip(self._made, returned, strict=True))
        given.update(values)
        make_transient_to_detached(record)
        db.add(record)

    def _fetch(self, _compiled: SQLCompiler, dialect: Dialect) -> Convert:
        rows = _Rows([each.type for each in self._made], dialect)
        return lambda cursor: rows(cursor)[0]


class _InsertForm(NamedTuple):
    sql: str
    parameters: "_Parameters"
    fetch: Convert


def _first(cursor: Any) -> Any:
    return cursor.fetchone()[0]


def _nothing(_cursor: Any) -> None:
    pass


def _is_constant(default: Any) -> bool:
    return default is not None and bool(default.is_scalar)


class _Form:
    """The query as one database is asked it, held to an organization or not."""

    def __init__(self, query: Select[Any], dialect: Dialect, *, restricted: bool) -> None:
        parts = [each["expr"] for each in query.column_descriptions]
        self._parts = [_RecordOf(each) if isinstance(each, type) else None for each in parts]
        columns = [
            column
            for each in parts
            for column in (_columns(each) if isinstance(each, type) else (each,))
        ]
        written = query.with_only_columns(*columns)
        if restricted:
            written = tenancy.restricted(written)
        compiled, names = _compiled(written, dialect)
        if restricted and tenancy.ORG_ID not in names:
            raise tenancy.TenancyBroken("a prepared query cannot be held to an organization")
        self.sql = compiled.string
        self._parameters = _Parameters(compiled, names, dialect)
        self.fetch = _Rows([column.type for column in columns], dialect)
        keys = [str(column.key) for column in columns]
        row: Any = namedtuple("Row", keys, rename=True)  # type: ignore[misc]  # noqa: PYI024 - of each query
        self._row = row._make

    def parameters(self, given: dict[str, Any]) -> Any:
        return self._parameters.of(given)

    def read(self, db: Session, rows: list[Sequence[Any]]) -> list[Any]:
        if not any(self._parts):
            return [self._row(row) for row in rows]
        return [self._with_records(db, row) for row in rows]

    def _with_records(self, db: Session, row: Sequence[Any]) -> tuple[Any, ...]:
        made, place = [], 0
        for part in self._parts:
            if part is None:
                made.append(row[place])
                place += 1
            else:
                made.append(part(db, row[place : place + part.width]))
                place += part.width
        return tuple(made)


class _Rows:
    """Fetches those of one statement, with the values of these types in them."""

    def __init__(self, types: Sequence[TypeEngine[Any]], dialect: Dialect) -> None:
        self._types = [each.dialect_impl(dialect) for each in types]
        self._dialect = dialect
        self._converts: list[tuple[int, Convert]] | None = None

    def __call__(self, cursor: Any) -> list[Sequence[Any]]:
        if self._converts is None:
            # What a value is made of may depend on what the database calls its column.
            found = [
                (place, kind.result_processor(self._dialect, cursor.description[place][1]))
                for place, kind in enumerate(self._types)
            ]
            self._converts = [(place, convert) for place, convert in found if convert]
        rows: list[Sequence[Any]] = cursor.fetchall()
        if not self._converts:
            return rows
        return [_converted(row, self._converts) for row in rows]


def _compiled(
    query: Select[*tuple[Any, ...]], dialect: Dialect
) -> tuple[SQLCompiler, frozenset[str]]:
    """With the constants of an `IN` in their places; and the names of what is to be given."""
    asked = query.compile(dialect=dialect)
    assert isinstance(asked, SQLCompiler)
    names = frozenset(name for name, bind in asked.binds.items() if bind.required)
    # To place constants, SQLAlchemy wants a value of everything.
    whole = query.params(dict.fromkeys(names)).compile(
        dialect=dialect, compile_kwargs={"render_postcompile": True}
    )
    assert isinstance(whole, SQLCompiler)
    return whole, names | ({tenancy.ORG_ID} & whole.binds.keys())


class _RecordOf:
    """Makes records of the session of their columns, as it would itself."""

    def __init__(self, kind: type[Record]) -> None:
        mapper = kind.__mapper__
        self._identity = mapper.identity_key_from_primary_key
        self._new = mapper.class_manager.new_instance
        self._names = [each.key for each in mapper.column_attrs]
        self._key = [self._names.index(str(each.key)) for each in mapper.primary_key]
        self.width = len(self._names)

    def __call__(self, db: Session, values: Sequence[Any]) -> Any:
        """None where an outer join found none; the one that the session has, where it has it."""
        key = tuple(values[place] for place in self._key)
        if None in key:
            return None
        known = db.identity_map.get(self._identity(key))
        if known is not None:
            return known
        made = self._new()
        made.__dict__.update(zip(self._names, values, strict=True))
        make_transient_to_detached(made)
        db.add(made)
        return made


class _Parameters:
    """Those of a compiled statement, in the order and the form that its driver takes."""

    def __init__(self, compiled: SQLCompiler, given: frozenset[str], dialect: Dialect) -> None:
        self._order = compiled.positiontup
        self._constants: dict[str, Any] = {}
        self._converts: dict[str, Convert | None] = {}
        for bind, name in compiled.bind_names.items():
            convert = bind.type.dialect_impl(dialect).bind_processor(dialect)
            value: Any = bind.value
            if name in given:
                self._converts[name] = convert
            elif bind.expanding:  # each of its values has a name of its own
                values = value if convert is None else map(convert, value)
                named = {f"{name}_{place}": each for place, each in enumerate(values, 1)}
                self._constants.update(named)
            else:
                self._constants[name] = value if convert is None else convert(value)

    def of(self, given: dict[str, Any]) -> Any:
        values = dict(self._constants)
        for name, convert in self._converts.items():
            value = given[name]
            values[name] = value if convert is None else convert(value)
        if self._order is None:
            return values
        return tuple(values[name] for name in self._order)


def _converted(row: Sequence[Any], converts: list[tuple[int, Convert]]) -> list[Any]:
    values = list(row)
    for place, convert in converts:
        values[place] = convert(values[place])
    return values


def send(
    connection: Connection, sql: str, parameters: Any, fetch: Callable[[Any], Fetched]
) -> Fetched:
    """What is fetched from the driver's cursor. Raises as SQLAlchemy does."""
    pooled = connection.connection
    driver = pooled.dbapi_connection
    assert driver is not None
    cursor = driver.cursor()
    try:
        # Whoever counts statements, or ends a process at one, means these too.
        for listener in connection.dispatch.before_cursor_execute:
            listener(connection, cursor, sql, parameters, None, False)
        cursor.execute(sql, parameters)
        return fetch(cursor)
    except connection.dialect.loaded_dbapi.Error as error:
        raise _failure(connection, cursor, sql, error) from error
    finally:
        cursor.close()


def _failure(connection: Connection, cursor: Any, sql: str, error: Exception) -> BaseException:
    """SQLAlchemy's error for the driver's; a connection that is lost is used no more."""
    dialect, pooled = connection.dialect, connection.connection
    lost = dialect.is_disconnect(error, pooled, cursor)  # type: ignore[arg-type]  # an Error
    if lost:
        # As SQLAlchemy does: the others of the pool were lost with it.
        connection.engine.pool._invalidate(pooled, error)  # noqa: SLF001 - it has no name for it
        connection.invalidate(error)
    # Without the parameters: a traceback in the log must not hold what was stored.
    return DBAPIError.instance(
        sql, None, error, dialect.loaded_dbapi.Error, connection_invalidated=lost
    )


def _columns(kind: type[Record]) -> list[Any]:
    return [getattr(kind, each.key) for each in kind.__mapper__.column_attrs]
