"""The work table: what outlives a request. control.work owns its rules."""

from datetime import datetime
from typing import Any, Final

from sqlalchemy import BigInteger, Index, Integer, UniqueConstraint, text
from sqlalchemy.orm import Mapped, mapped_column

from storage.columns import Json, Record, one_of

STATES: Final = ("waiting", "running", "done", "failed")
_UNFINISHED: Final = text("due IS NOT NULL")
_FINISHED: Final = text("due IS NULL")


class Work(Record):
    """One operation.

    `due`: when it may run; while a worker holds it, when the lease ends; NULL once finished.
    `deadline`: counted from the first claim, so that waiting for a worker costs nobody time.
    `holder`: the worker that claimed it last, where others can see whether that one still lives.
    `steps`: the results of finished steps by name. `slot`: the turn of a schedule, unique.
    """

    __tablename__ = "work"
    __table_args__ = (
        one_of("state", STATES),
        UniqueConstraint("schedule", "slot"),
        Index("ix_work_due", "due", postgresql_where=_UNFINISHED, sqlite_where=_UNFINISHED),
        Index(
            "ix_work_lane", "lane", "seq", postgresql_where=_UNFINISHED, sqlite_where=_UNFINISHED
        ),
        Index(
            "ix_work_finished", "finished_at", postgresql_where=_FINISHED, sqlite_where=_FINISHED
        ),
    )

    seq: Mapped[int] = mapped_column(
        BigInteger().with_variant(Integer(), "sqlite"), primary_key=True, autoincrement=True
    )
    operation: Mapped[str] = mapped_column(unique=True)
    kind: Mapped[str]
    lane: Mapped[str]
    args: Mapped[dict[str, Any]] = mapped_column(Json, default=dict)
    steps: Mapped[dict[str, Any]] = mapped_column(Json, default=dict)
    due: Mapped[datetime | None]
    deadline: Mapped[datetime | None]
    lease: Mapped[int] = mapped_column(BigInteger, default=0)
    holder: Mapped[str | None]
    attempts: Mapped[int] = mapped_column(default=0)
    state: Mapped[str] = mapped_column(default="waiting")
    error: Mapped[str | None]
    schedule: Mapped[str | None]
    slot: Mapped[datetime | None]
    finished_at: Mapped[datetime | None]
