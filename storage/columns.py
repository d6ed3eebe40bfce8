"""Column types shared by all records: UTC moments, JSON, enumerations; the declarative root."""

from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, Final

from sqlalchemy import (
    ARRAY,
    JSON,
    BigInteger,
    CheckConstraint,
    ColumnElement,
    Dialect,
    MetaData,
    Text,
    TypeDecorator,
    bindparam,
    column,
)
from sqlalchemy.dialects.postgresql import JSONB, TIMESTAMP
from sqlalchemy.ext.compiler import compiles
from sqlalchemy.orm import DeclarativeBase, InstrumentedAttribute, Mapped, mapped_column
from sqlalchemy.sql.compiler import SQLCompiler
from sqlalchemy.sql.functions import FunctionElement
from sqlalchemy.types import NullType, TypeEngine

EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
MILLISECOND: Final = timedelta(milliseconds=1)


class Timestamp(TypeDecorator[datetime]):
    """An aware UTC moment in whole milliseconds: timestamptz, or their number on SQLite."""

    impl = BigInteger
    cache_ok = True

    def load_dialect_impl(self, dialect: Dialect) -> TypeEngine[Any]:
        if dialect.name == "postgresql":
            return dialect.type_descriptor(TIMESTAMP(timezone=True))
        return dialect.type_descriptor(BigInteger())

    def process_bind_param(self, value: datetime | None, dialect: Dialect) -> datetime | int | None:
        if value is None:
            return None
        if value.tzinfo is None:
            raise ValueError("a timestamp without a time zone cannot be stored")
        milliseconds = (value - EPOCH) // MILLISECOND
        if dialect.name == "postgresql":
            return EPOCH + milliseconds * MILLISECOND
        return milliseconds

    def process_result_value(self, value: Any, dialect: Dialect) -> datetime | None:  # noqa: ARG002 - SQLAlchemy's signature
        if value is None:
            return None
        if isinstance(value, datetime):
            return value.astimezone(UTC)
        return EPOCH + int(value) * MILLISECOND


class DatabaseClock(FunctionElement[datetime]):
    """The database's own clock as an SQL expression; no host's clock is trusted."""

    name = "database_clock"
    type = Timestamp()
    inherit_cache = True


@compiles(DatabaseClock, "sqlite")
def _sqlite_clock(_element: DatabaseClock, _compiler: SQLCompiler, **_options: Any) -> str:
    return "CAST(ROUND((julianday('now') - 2440587.5) * 86400000) AS INTEGER)"


@compiles(DatabaseClock, "postgresql")
def _postgresql_clock(_element: DatabaseClock, _compiler: SQLCompiler, **_options: Any) -> str:
    return "date_trunc('milliseconds', clock_timestamp())"


class _Texts(TypeDecorator[list[str]]):
    """Texts as one parameter."""

    impl = JSON
    cache_ok = True

    def load_dialect_impl(self, dialect: Dialect) -> TypeEngine[Any]:
        return dialect.type_descriptor(ARRAY(Text) if dialect.name == "postgresql" else JSON())


class _Among(FunctionElement[Any]):
    name = "among"
    # Not a Boolean, which on SQLite is compared with 1, and then finds no index.
    type = NullType()
    inherit_cache = True


def is_among(column: ColumnElement[str] | InstrumentedAttribute[str], name: str) -> _Among:
    """Whether it is in the list that is given as this parameter, of whatever length.

    `IN` has a parameter for each that is in the list, so it is another statement for each length.
    """
    return _Among(column, bindparam(name, type_=_Texts()))


@compiles(_Among, "sqlite")
def _sqlite_among(element: _Among, compiler: SQLCompiler, **options: Any) -> str:
    value, texts = (compiler.process(each, **options) for each in element.clauses)
    return f"{value} IN (SELECT value FROM json_each({texts}))"  # noqa: S608 - both are SQLAlchemy's


@compiles(_Among, "postgresql")
def _postgresql_among(element: _Among, compiler: SQLCompiler, **options: Any) -> str:
    value, texts = (compiler.process(each, **options) for each in element.clauses)
    return f"{value} = ANY({texts})"


class WholeRow(FunctionElement[str]):
    """The columns given, of one row, as one text: another one wherever any of them differs."""

    name = "whole_row"
    type = Text()
    inherit_cache = True


@compiles(WholeRow, "sqlite")
def _sqlite_row(element: WholeRow, compiler: SQLCompiler, **options: Any) -> str:
    texts = (f"quote({compiler.process(each, **options)})" for each in element.clauses)
    return " || ',' || ".join(texts)


@compiles(WholeRow, "postgresql")
def _postgresql_row(element: WholeRow, compiler: SQLCompiler, **options: Any) -> str:
    return f"CAST(ROW({compiler.process(element.clauses, **options)}) AS TEXT)"


Json: Final = JSON().with_variant(JSONB(), "postgresql")


class Record(DeclarativeBase):
    """The root of all records; constraint names follow one convention, so migrations find them."""

    metadata = MetaData(
        naming_convention={
            "ix": "ix_%(table_name)s_%(column_0_N_name)s",
            "uq": "uq_%(table_name)s_%(column_0_N_name)s",
            "ck": "ck_%(table_name)s_%(constraint_name)s",
            "fk": "fk_%(table_name)s_%(column_0_N_name)s",
            "pk": "pk_%(table_name)s",
        }
    )
    type_annotation_map = {datetime: Timestamp()}  # noqa: RUF012 - SQLAlchemy reads it as a plain dict

    created_at: Mapped[datetime] = mapped_column(
        Timestamp(), default=DatabaseClock(), sort_order=99
    )


class Owned:
    """Of one organization: storage/tenancy.py keeps the requests of others from it.

    A class of records that is not owned has its reason in contract_tests/storage/test_tenancy.py.
    """

    if TYPE_CHECKING:
        org_id: Any

    @classmethod
    def owner_id(cls) -> Any:
        """The column that names the organization."""
        # SQLAlchemy asks this class itself too, once, for the form of the answer.
        return column("org_id") if cls is Owned else cls.org_id

    @property
    def owner(self) -> str | None:
        """The organization's id."""
        owner: str | None = self.org_id
        return owner


def one_of(column: str, values: Iterable[str]) -> CheckConstraint:
    """A CHECK that holds an enumeration in the database itself."""
    listed = ", ".join(f"'{value}'" for value in values)
    return CheckConstraint(f"{column} IN ({listed})", name=column)
