"""The database: engine, transactions, clock and the translation of its errors."""

import importlib
import math
import shutil
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any, Final

import orjson
from sqlalchemy import Connection, Engine, create_engine, event, inspect, make_url, select, text
from sqlalchemy.exc import (
    DatabaseError,
    DBAPIError,
    DisconnectionError,
    IntegrityError,
    OperationalError,
    SQLAlchemyError,
)
from sqlalchemy.exc import TimeoutError as PoolTimeout
from sqlalchemy.orm import Session

from storage import conflicts
from storage.columns import DatabaseClock
from storage.errors import SchemaUnknown, StorageUnavailable
from storage.prepared import WRITING, Prepared

POOL_SIZE: Final = 20
BUSY_TIMEOUT_MS: Final = 15_000
PING_AFTER_S: Final = 1.0
FULL_FOR_S: Final = 60.0
FREE_MIN_BYTES: Final = 64 * 2**20
_NO_SPACE: Final = "the database has no space left"
_READ_ONLY: Final = "25006"  # PostgreSQL's, as of a standby
_ON_COMMIT: Final = "menagerie_on_commit"
_OFFSET: Final = "menagerie_clock_offset"
_RESTING_SINCE: Final = "menagerie_resting_since"
_CLOCK: Final = Prepared(select(DatabaseClock()))
_REVISIONS: Final = Path(__file__).parent / "migrations" / "versions"


class Database:
    """One database of the control plane, SQLite or PostgreSQL, safe to share between threads."""

    def __init__(self, url: str, *, clock_offset_s: float = 0) -> None:
        # Every table is known before the first statement, whichever records a process works with.
        importlib.import_module("storage.records")
        self.url = make_url(url)
        self.dialect = self.url.get_backend_name()
        self.clock_offset = timedelta(seconds=clock_offset_s)
        self.engine = _sqlite(self.url) if self.dialect == "sqlite" else _postgresql(self.url)
        self._writer = self.engine.execution_options(**{WRITING: True})
        self._reader = self.engine
        if self.dialect == "postgresql":
            # Each statement sees the state at its own beginning there, in a transaction or not,
            # and to begin and end one takes as long as to ask twice more.
            self._reader = self.engine.execution_options(isolation_level="AUTOCOMMIT")
        self._lock = threading.Lock() if self.dialect == "sqlite" else None
        self._full_at = -math.inf

    @property
    def reads_one_state(self) -> bool:
        """Whether all queries of a `read` see the same, or each what there is when it begins."""
        return self.dialect == "sqlite"

    @contextmanager
    def read(self) -> Iterator[Session]:
        """A session that never flushes; on SQLite it sees one state of the database throughout."""
        with _translated(), Session(self._reader, autoflush=False, expire_on_commit=False) as db:
            db.info.update({WRITING: False, _OFFSET: self.clock_offset})
            try:
                yield db
            except BaseException as error:
                # The database's own failures, and a process that ends, leave nothing to commit.
                if isinstance(error, SQLAlchemyError) or not isinstance(error, Exception):
                    db.rollback()
                else:
                    release(db)
                raise
            release(db)

    @contextmanager
    def write(self) -> Iterator[Session]:
        """A transaction: committed when the block ends, rolled back when it raises.

        On SQLite writers of this process queue on one lock, which is fairer and faster than the
        file's own; it is not reentrant, so never open a second `write` inside the first.
        """
        with _held(self._lock), self._noted(), _translated():
            with Session(self._writer, expire_on_commit=False) as db, db.begin():
                db.info[_OFFSET] = self.clock_offset
                yield db
            after = db.info.pop(_ON_COMMIT, ())
        for act in after:
            act()

    @contextmanager
    def _noted(self) -> Iterator[None]:
        try:
            yield
        except StorageUnavailable as error:
            if error.detail == _NO_SPACE:
                self._full_at = time.monotonic()
            raise

    def lacks_space(self) -> str | None:
        """What to do where space is short; told without a write, as anybody may ask."""
        file = self.url.database if self.dialect == "sqlite" else None
        free = shutil.disk_usage(Path(file).parent).free if file else FREE_MIN_BYTES
        if free < FREE_MIN_BYTES:
            return f"{free // 2**20} MiB are free on the database's disk; free some space on it"
        if time.monotonic() - self._full_at < FULL_FOR_S:
            return "a write failed for lack of disk space; free some space on the database's disk"
        return None

    def now(self, db: Session) -> datetime:
        """The database's clock, which alone decides what is due, leased or expired."""
        return now(db)

    def migrate(self) -> None:
        """Bring the schema to the newest revision. Raises StorageUnavailable as transactions do.

        And SchemaUnknown, with nothing changed, where another version has brought it further.
        """
        # Told without Alembic, whose revisions have the numbers of their files.
        known = {path.name.partition("_")[0] for path in _REVISIONS.glob("[0-9]*.py")}
        with _translated():
            found = self._revision()
            if found == max(known):
                return
            if found is not None and found not in known:
                raise SchemaUnknown(
                    f"the database is at revision {found}, but this version knows revisions up to"
                    f" {max(known)}: start the version that upgraded it, or a newer one"
                )
            from storage.migrations import upgrade  # noqa: PLC0415 - Alembic is slow to import and rarely needed

            upgrade(self._writer)

    def _revision(self) -> str | None:
        with self.engine.connect() as connection:
            if not inspect(connection).has_table("alembic_version"):
                return None
            found = connection.scalar(text("SELECT version_num FROM alembic_version"))
        return None if found is None else str(found)

    def dispose(self) -> None:
        self.engine.dispose()


def now(db: Session) -> datetime:
    """The clock of the session's database."""
    ((clock,),) = _CLOCK.rows(db)
    return moment_of(db, clock)


def moment_of(db: Session, clock: datetime) -> datetime:
    """The time at which its database's own clock shows this."""
    offset: timedelta = db.info[_OFFSET]
    return clock + offset


def release(db: Session) -> None:
    """End what a read session has read, and give its connection back.

    With a COMMIT: at a ROLLBACK the driver forgets all that PostgreSQL has prepared, and planning
    the queries of a request again takes four times what they take themselves.
    """
    db.expunge_all()
    db.commit()


def unwritten(db: Session) -> list[Any]:
    """Records that a session which only reads was given to write; it forgets them."""
    return [*db.new, *db.dirty, *db.deleted] if only_reads(db) else []


def only_reads(db: Session) -> bool:
    """Whether it is a session of `read`, which may be in no transaction."""
    return db.info.get(WRITING) is False


def on_commit(db: Session, act: Callable[[], None]) -> None:
    """Run `act` once the transaction of `db` is committed, and never if it is not."""
    acts = db.info.setdefault(_ON_COMMIT, [])
    if act not in acts:
        acts.append(act)


@contextmanager
def _held(lock: "threading.Lock | None") -> Iterator[None]:
    if lock is None:
        yield
        return
    if not lock.acquire(timeout=BUSY_TIMEOUT_MS / 1000):
        raise StorageUnavailable("the database is busy with other writes")
    try:
        yield
    finally:
        lock.release()


@contextmanager
def _translated() -> Iterator[None]:
    """Turn the driver's errors into facts: a broken constraint, or an outage."""
    try:
        yield
    except IntegrityError as error:
        conflict = conflicts.of(error)
        if conflict is None:
            raise
        raise conflict from error
    except (OperationalError, PoolTimeout) as error:
        raise StorageUnavailable(_outage(error)) from error
    except DBAPIError as error:
        if error.connection_invalidated:
            raise StorageUnavailable("the database connection was lost") from error
        if getattr(error.orig, "sqlstate", None) == _READ_ONLY:
            raise StorageUnavailable("the database accepts no writes") from error
        if type(error) is DatabaseError:  # SQLite's, of no kind that callers could cause
            raise StorageUnavailable("the database cannot be read") from error
        raise


def _outage(error: Exception) -> str:
    text = str(getattr(error, "orig", error)).lower()
    if "full" in text or "no space" in text:
        return _NO_SPACE
    if "locked" in text or "busy" in text:
        return "the database is busy with other writes"
    return "the database cannot be reached"


def _engine_options() -> dict[str, Any]:
    return {
        "json_serializer": _to_json,
        "json_deserializer": _from_json,
        # A traceback in the log must not hold what was stored.
        "hide_parameters": True,
        "pool_size": POOL_SIZE,
        "max_overflow": POOL_SIZE,
    }


def _sqlite(url: Any) -> Engine:
    if url.database in (None, "", ":memory:"):
        raise ValueError("sqlite needs a file: every connection to :memory: is its own database")
    Path(url.database).parent.mkdir(parents=True, exist_ok=True)
    engine = create_engine(
        url, connect_args={"timeout": BUSY_TIMEOUT_MS / 1000}, **_engine_options()
    )

    @event.listens_for(engine, "connect")
    def _configure(connection: Any, _record: Any) -> None:
        # The driver's own BEGIN comes too late for snapshots, so transactions are begun below.
        connection.isolation_level = None
        for pragma in ("journal_mode=WAL", "synchronous=NORMAL", "foreign_keys=ON"):
            connection.execute(f"PRAGMA {pragma}")

    @event.listens_for(engine, "begin")
    def _begin(connection: Connection) -> None:
        writing = connection.get_execution_options().get(WRITING)
        connection.exec_driver_sql("BEGIN IMMEDIATE" if writing else "BEGIN")

    return engine


def _postgresql(url: Any) -> Engine:
    engine = create_engine(url, connect_args={"options": "-c timezone=UTC"}, **_engine_options())

    @event.listens_for(engine, "checkin")
    def _rest(_connection: Any, record: Any) -> None:
        record.info[_RESTING_SINCE] = time.monotonic()

    @event.listens_for(engine, "checkout")
    def _look(connection: Any, record: Any, _proxy: Any) -> None:
        """A restarted server is noticed before a request is handed a dead connection.

        Asking every time would double the cost of a transaction; after one that was found dead,
        the pool makes all connections anew.
        """
        since = record.info.get(_RESTING_SINCE)
        if since is None or time.monotonic() - since < PING_AFTER_S:
            return
        try:
            engine.dialect.do_ping(connection)
        except engine.dialect.loaded_dbapi.Error as error:
            raise DisconnectionError from error

    return engine


def _to_json(value: Any) -> str:
    return orjson.dumps(value).decode()


def _from_json(value: Any) -> Any:
    """SQLite gives a column of JSON numeric affinity: a bare number comes back as one."""
    return value if isinstance(value, int | float) else orjson.loads(value)


@event.listens_for(Session, "before_flush")
def _refuse_flush(db: Session, _context: Any, _instances: Any) -> None:
    if only_reads(db):
        raise RuntimeError("a read session was asked to write")
