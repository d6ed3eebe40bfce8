"""Finding one record by its key: as `Session.get` does, by statements that are built once."""

import functools
from typing import Any, TypeVar

from sqlalchemy import Select, bindparam, select
from sqlalchemy.orm import Mapper, Session

from storage.columns import Record

Found = TypeVar("Found", bound=Record)


def by_key(db: Session, record: type[Found], *key: Any, lock: bool = False) -> Found | None:
    """The record of that key; `lock` reads it anew, and holds its row until the transaction ends.

    `Session.get` builds its statement for every call, which costs more than to execute it.
    """
    mapper: Mapper[Found] = record.__mapper__
    if not lock:
        known: Found | None = db.identity_map.get(mapper.identity_key_from_primary_key(key))
        if known is not None:
            return known
    named = {str(column.key): value for column, value in zip(mapper.primary_key, key, strict=True)}
    return db.scalars(_statement(record, lock), named).one_or_none()


@functools.cache
def _statement(record: type[Found], lock: bool) -> Select[Any]:
    mapper: Mapper[Found] = record.__mapper__
    rows = select(record).where(*(each == bindparam(each.key) for each in mapper.primary_key))
    return rows.with_for_update().execution_options(populate_existing=True) if lock else rows
