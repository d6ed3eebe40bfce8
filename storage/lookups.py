"""Statements that hold for records of any kind: one by its key, and the oldest by their ids."""

import functools
from datetime import datetime
from typing import Any, TypeVar

from sqlalchemy import ColumnElement, Select, and_, bindparam, delete, select, tuple_
from sqlalchemy.orm import InstrumentedAttribute, Mapper, Session

from storage import identifiers
from storage.columns import Record
from storage.prepared import Prepared

Found = TypeVar("Found", bound=Record)


def by_key(db: Session, record: type[Found], *key: Any, lock: bool = False) -> Found | None:
    """The record of that key; `lock` reads it anew, and holds it until the transaction ends."""
    mapper: Mapper[Found] = record.__mapper__
    known: Found | None = db.identity_map.get(mapper.identity_key_from_primary_key(key))
    if known is not None and not lock:
        return known
    named = {str(column.key): value for column, value in zip(mapper.primary_key, key, strict=True)}
    if known is not None:
        anew = _query(record, lock).execution_options(populate_existing=True)
        return db.scalars(anew, named).one_or_none()
    row = _prepared(record, lock).one_or_none(db, **named)
    return None if row is None else row[0]


@functools.cache
def _prepared(record: type[Found], lock: bool) -> Prepared:
    return Prepared(_query(record, lock))


@functools.cache
def _query(record: type[Found], lock: bool) -> Select[Any]:
    mapper: Mapper[Found] = record.__mapper__
    rows = select(record).where(*(each == bindparam(each.key) for each in mapper.primary_key))
    return rows.with_for_update() if lock else rows


def delete_oldest(
    db: Session,
    key: InstrumentedAttribute[str],
    prefix: str,
    before: datetime,
    limit: int,
    *which: ColumnElement[bool],
) -> int:
    """Delete at most `limit` of those made before that moment, oldest first; how many went.

    `key` holds ids with the prefix, which tell when they were made.
    """
    old = and_(key < identifiers.first_of(prefix, before), *which)
    return delete_some(db, key.parent.class_, old, limit, key)


def delete_some(
    db: Session,
    record: type[Record],
    which: ColumnElement[bool],
    limit: int,
    *in_order: InstrumentedAttribute[Any],
) -> int:
    """Delete at most `limit` of those that it is true of; how many went."""
    key = record.__mapper__.primary_key
    some = select(*key).where(which).order_by(*in_order).limit(limit)
    gone = delete(record).where(tuple_(*key).in_(some))
    return len(db.execute(gone.returning(key[0])).all())
