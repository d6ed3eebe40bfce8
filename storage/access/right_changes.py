"""Changes of what rights follow from, which the database itself tells of to those who follow.

A stream asks for its caller's rights again when they may have changed. Its organization's or its
user's rows are changed by many operations, and by hand; so triggers on the tables (migrations
202611300750 and 202611301510) tell of it, and no statement passes them by. On PostgreSQL they
NOTIFY the channel of events; on SQLite, where nobody can be told, they count here. A migration that
makes one of the tables anew, as Alembic's batches do on SQLite, makes its triggers anew as well.
"""

from collections.abc import Collection
from typing import Final

from sqlalchemy import BigInteger, select
from sqlalchemy.orm import Mapped, Session, mapped_column

from storage.columns import Record, is_among
from storage.prepared import Prepared


class RightChange(Record):
    """How often rights of an organization or of a user have changed; empty on PostgreSQL."""

    __tablename__ = "right_changes"

    whose: Mapped[str] = mapped_column(primary_key=True)
    count: Mapped[int] = mapped_column(BigInteger)


_COUNTS: Final = Prepared(
    select(RightChange.whose, RightChange.count).where(is_among(RightChange.whose, "whose"))
)


def counts(db: Session, whose: Collection[str]) -> dict[str, int]:
    """The counts of these organizations and users; for a session of the service itself."""
    return dict(_COUNTS.rows(db, whose=list(whose)))
