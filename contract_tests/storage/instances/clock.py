"""A clock that a database shows in place of its own."""

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from sqlalchemy import event

from storage.columns import EPOCH, DatabaseClock
from storage.database import Database

BEGIN: Final = datetime(2031, 1, 20, 7, 30, 0, 250_000, tzinfo=UTC)
"""After all that the database's own clock shows while these tests run."""


class Clock:
    """Shown by the database in place of its own, wherever a statement asks for the time."""

    def __init__(self, database: Database) -> None:
        self.moment = BEGIN
        self._on_sqlite = database.dialect == "sqlite"
        self._written = str(DatabaseClock().compile(database.engine))

    def __call__(
        self, _connection: Any, _cursor: Any, statement: str, parameters: Any, *_: Any
    ) -> tuple[str, Any]:
        return statement.replace(self._written, self.shown), parameters

    @property
    def shown(self) -> str:
        if self._on_sqlite:
            return str((self.moment - EPOCH) // timedelta(milliseconds=1))
        return f"'{self.moment.isoformat()}'::timestamptz"

    def pass_time(self, milliseconds: int) -> None:
        self.moment += timedelta(milliseconds=milliseconds)


@contextmanager
def clock_of(database: Database) -> Iterator[Clock]:
    clock = Clock(database)
    event.listen(database.engine, "before_cursor_execute", clock, retval=True)
    yield clock
    event.remove(database.engine, "before_cursor_execute", clock)
