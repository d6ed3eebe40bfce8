"""Which workers live: each holds a lock of its own that ends with its process, however that ends.

On PostgreSQL it is an advisory lock of the session that listens; on SQLite, whose workers share a
machine, a file beside the database that the process holds locked.
"""

import fcntl
import os
from collections.abc import Collection, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Final

from sqlalchemy import func, select

from storage import identifiers
from storage.database import Database

if TYPE_CHECKING:  # slow to import, and needless on SQLite
    import psycopg

_BEGUN: Final = ".begun"


class Presence:
    """One worker, as others see it. `shown` is its name while its lock is held, else None."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._name = identifiers.new("wrk_")
        self.shown: str | None = None

    @contextmanager
    def by_session(self, connection: "psycopg.Connection") -> Iterator[None]:
        """Seen on PostgreSQL, as long as that session lasts."""
        lock = "SELECT pg_advisory_lock(hashtextextended(%s, 0))"
        connection.execute(lock, (self._name,))
        with self._seen():
            yield

    @contextmanager
    def by_file(self) -> Iterator[None]:
        """Seen on SQLite."""
        folder = self._folder()
        folder.mkdir(mode=0o700, exist_ok=True)
        _forget_left(folder)
        path = folder / self._name
        begun = path.with_suffix(_BEGUN)
        with begun.open("wb") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            # Only now, locked, it bears the name by which others look for it.
            begun.rename(path)
            with self._seen():
                yield
            path.unlink(missing_ok=True)

    @contextmanager
    def _seen(self) -> Iterator[None]:
        self.shown = self._name
        try:
            yield
        finally:
            self.shown = None

    def absent(self, names: Collection[str]) -> set[str]:
        """Those of the other workers that hold no lock: they are gone, or about to be seen again.

        One that stands still, or that the network cuts off, is there; its lease tells.
        """
        others = set(names) - {self._name}
        if self._database.dialect == "postgresql":
            return {name for name in others if self._is_free(name)}
        folder = self._folder()
        return {name for name in others if not _is_locked(folder / name)}

    def _is_free(self, name: str) -> bool:
        lock = func.pg_try_advisory_xact_lock(func.hashtextextended(name, 0))
        with self._database.read() as db:
            return bool(db.scalar(select(lock)))

    def _folder(self) -> Path:
        return Path(f"{self._database.url.database}-workers")


def _forget_left(folder: Path) -> None:
    """Remove the files of workers that are gone."""
    for path in folder.iterdir():
        if path.suffix != _BEGUN and not _is_locked(path):
            path.unlink(missing_ok=True)


def _is_locked(path: Path) -> bool:
    try:
        file = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        return False
    with closing(os.fdopen(file, "rb")) as opened:
        try:
            fcntl.flock(opened, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
    return False
