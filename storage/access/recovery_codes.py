"""Recovery codes: what stands in for an authenticator app, each once, known by a hash."""

from collections.abc import Iterable
from datetime import datetime

from sqlalchemy import ColumnElement, ForeignKey, delete, func, select, update
from sqlalchemy.orm import Mapped, Session, mapped_column

from storage import identifiers
from storage.columns import Record


class RecoveryCode(Record):
    __tablename__ = "recovery_codes"

    id: Mapped[str] = mapped_column(primary_key=True)
    user_id: Mapped[str] = mapped_column(ForeignKey("users.id"), index=True)
    code_hash: Mapped[str]
    used_at: Mapped[datetime | None]


def replace(db: Session, user_id: str, hashes: Iterable[str]) -> None:
    """These are the user's from now on, and no others are good."""
    forget(db, user_id)
    for each in hashes:
        db.add(RecoveryCode(id=identifiers.new("rc_"), user_id=user_id, code_hash=each))
    db.flush()


def use(db: Session, user_id: str, code_hash: str, at: datetime) -> bool:
    """Whether it was one of the user's, which is used up by this."""
    one = update(RecoveryCode).where(*_unused(user_id), RecoveryCode.code_hash == code_hash)
    return db.scalar(one.values(used_at=at).returning(RecoveryCode.id)) is not None


def count_left(db: Session, user_id: str) -> int:
    rows = select(func.count()).select_from(RecoveryCode).where(*_unused(user_id))
    return db.scalars(rows).one()


def forget(db: Session, user_id: str) -> None:
    """All of the user's."""
    db.execute(delete(RecoveryCode).where(RecoveryCode.user_id == user_id))


def _unused(user_id: str) -> tuple[ColumnElement[bool], ...]:
    return RecoveryCode.user_id == user_id, RecoveryCode.used_at.is_(None)
