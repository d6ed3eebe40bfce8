"""Keyset pages: a list is walked by id, so inserts and deletes never shift what comes next."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

from sqlalchemy import Select
from sqlalchemy.orm import InstrumentedAttribute, Session

Item = TypeVar("Item")


@dataclass(frozen=True)
class Page(Generic[Item]):
    """`next_after` is the id to go on from, or None on the last page."""

    items: list[Item]
    next_after: str | None


def keyset(
    db: Session,
    rows: Select[Item],
    key: InstrumentedAttribute[str],
    *,
    limit: int,
    after: str | None,
) -> Page[Item]:
    """At most `limit` items after the id `after`, newest first by `key`."""
    if after is not None:
        rows = rows.where(key < after)
    rows = rows.order_by(key.desc()).limit(limit + 1)
    return cut(list(db.scalars(rows)), key.key, limit)


def cut(found: Sequence[Item], key: str, limit: int) -> Page[Item]:
    """The page of what was found, of which one more than `limit` was asked for."""
    items = list(found[:limit])
    return Page(items, getattr(items[-1], key) if len(found) > limit else None)
