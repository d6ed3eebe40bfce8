"""Spans: what each instance was, and for whom, from one moment to another; costs are their sum.

An instance has a span from when it is first ready until it is asked to be gone. Whenever its team,
its size, its storage or whether it runs changes, its span ends, and the next one begins at the same
moment. The database does this itself, by triggers on `instances` (migration 202611292330), so that
no statement changes an instance and passes the record by, also none that is sent by hand. A
migration that makes the table `instances` anew, as Alembic's batches do on SQLite, makes the
triggers anew as well.

A span that has ended never changes; the database refuses it. What is to be corrected is corrected
where it is counted, by entries of its own.
"""

from collections.abc import Iterator
from datetime import datetime
from typing import Any, Final, NamedTuple

from sqlalchemy import (
    BigInteger,
    ForeignKey,
    Index,
    Integer,
    Select,
    case,
    func,
    literal,
    or_,
    select,
    text,
)
from sqlalchemy.ext.compiler import compiles
from sqlalchemy.orm import Mapped, Session, mapped_column
from sqlalchemy.sql.compiler import SQLCompiler
from sqlalchemy.sql.functions import FunctionElement

from storage.billing.whose import Whose
from storage.columns import Owned, Record, Timestamp
from storage.instances.instances import Instance

_OPEN: Final = text("until IS NULL")


class BilledSpan(Owned, Record):
    """Written by the database alone. `runs` is whether its compute is billed, not its storage only.

    Without an `until` it lasts. Its team may be deleted by now.
    """

    __tablename__ = "spans"
    __table_args__ = (
        Index(
            "ix_spans_open",
            "instance_id",
            unique=True,
            postgresql_where=_OPEN,
            sqlite_where=_OPEN,
        ),
        Index(None, "instance_id", "until"),
        Index(None, "team_id", "until"),
        Index(None, "org_id", "until"),
    )

    id: Mapped[int] = mapped_column(
        BigInteger().with_variant(Integer(), "sqlite"), primary_key=True
    )
    org_id: Mapped[str] = mapped_column(ForeignKey("organizations.id"))
    instance_id: Mapped[str] = mapped_column(ForeignKey("instances.id"))
    team_id: Mapped[str | None]
    size: Mapped[str]
    storage_bytes: Mapped[int] = mapped_column(BigInteger)
    runs: Mapped[bool]
    since: Mapped[datetime]
    until: Mapped[datetime | None]


class SpanSums(NamedTuple):
    """How long an instance was something for a team, within a time; `lasting` spans last on."""

    instance_id: str
    team_id: str | None
    region: str
    size: str
    storage_bytes: int
    runs: bool
    seconds: int
    lasting: int


def sums(db: Session, whose: Whose, *, since: datetime, until: datetime) -> Iterator[SpanSums]:
    """What instances were within [since, until).

    By the second: a span counts from the second that it begins in to the second that it ends in, so
    those that follow each other leave none out and have none in common.
    """
    begins = case((BilledSpan.since > since, BilledSpan.since), else_=literal(since, Timestamp()))
    ends = case((BilledSpan.until < until, BilledSpan.until), else_=literal(until, Timestamp()))
    kind = (
        *(BilledSpan.instance_id, BilledSpan.team_id, Instance.region, BilledSpan.size),
        *(BilledSpan.storage_bytes, BilledSpan.runs),
    )
    rows: Select[*tuple[Any, ...]] = (
        select(
            *kind,
            func.sum(WholeSeconds(ends) - WholeSeconds(begins)),
            func.count().filter(or_(BilledSpan.until.is_(None), BilledSpan.until > until)),
        )
        .join(Instance, Instance.id == BilledSpan.instance_id)
        .where(
            BilledSpan.since < until,
            or_(BilledSpan.until.is_(None), BilledSpan.until > since),
        )
        .group_by(*kind)
    )
    rows = whose.of(
        rows, org=BilledSpan.org_id, team=BilledSpan.team_id, instance=BilledSpan.instance_id
    )
    for row in db.execute(rows):
        # A sum is a Decimal on PostgreSQL.
        yield SpanSums._make((*row[:6], int(row[6]), row[7]))


class WholeSeconds(FunctionElement[int]):
    """How many seconds had passed since 1970 at a moment, without what is not a whole one."""

    name = "whole_seconds"
    type = BigInteger()
    inherit_cache = True


@compiles(WholeSeconds, "sqlite")
def _sqlite_seconds(element: WholeSeconds, compiler: SQLCompiler, **options: Any) -> str:
    return f"({compiler.process(element.clauses, **options)}) / 1000"


@compiles(WholeSeconds, "postgresql")
def _postgresql_seconds(element: WholeSeconds, compiler: SQLCompiler, **options: Any) -> str:
    moment = compiler.process(element.clauses, **options)
    return f"CAST(floor(extract(epoch FROM {moment})) AS BIGINT)"
