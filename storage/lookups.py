"""Statements that hold for records of any kind: one by its key, and the oldest by their ids."""

import functools
from datetime import datetime
from typing import Any, TypeVar

from sqlalchemy import Select, bindparam, delete, select
from sqlalchemy.orm import InstrumentedAttribute, Mapper, Session

from storage import identifiers
from storage.columns import Record
from storage.prepared import Prepared

Found = TypeVar("Found", bound=Record)


def by_key(db: Session, record: type[Found], *key: Any, lock: bool = False) -> Found | None:
    """The record of that key; `lock` reads it anew, and holds it until the transaction ends."""
    mapper: Mapper[Found] = record.__mapper__
    if not lock:
        known: Found | None = db.identity_map.get(mapper.identity_key_from_primary_key(key))
        if known is not None:
            return known
    named = {str(column.key): value for column, value in zip(mapper.primary_key, key, strict=True)}
    if lock:
        return db.scalars(_locking(record), named).one_or_none()
    row = _reading(record).one_or_none(db, **named)
    return None if row is None else row[0]


@functools.cache
def _locking(record: type[Found]) -> Select[Any]:
    return _query(record).with_for_update().execution_options(populate_existing=True)


@functools.cache
def _reading(record: type[Found]) -> Prepared:
    return Prepared(_query(record))


def _query(record: type[Found]) -> Select[Any]:
    mapper: Mapper[Found] = record.__mapper__
    return select(record).where(*(each == bindparam(each.key) for each in mapper.primary_key))


def delete_oldest(
    db: Session, key: InstrumentedAttribute[str], prefix: str, before: datetime, limit: int
) -> int:
    """Delete at most `limit` of those made before that moment, oldest first; how many went.

    `key` holds ids with the prefix, which tell when they were made.
    """
    old = select(key).where(key < identifiers.first_of(prefix, before))
    oldest = old.order_by(key).limit(limit).scalar_subquery()
    return len(db.execute(delete(key.class_).where(key.in_(oldest)).returning(key)).all())
