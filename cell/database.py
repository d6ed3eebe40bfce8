"""The cell's own database: one SQLite file, written by this process only."""

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import structlog

from specserver import Unavailable

SCHEMA = """
CREATE TABLE IF NOT EXISTS instances (
    instance_id TEXT PRIMARY KEY,
    uid INTEGER NOT NULL UNIQUE,
    spec TEXT NOT NULL,
    desired TEXT NOT NULL,
    paused_by TEXT,
    created_at REAL NOT NULL
);
CREATE TABLE IF NOT EXISTS erasures (instance_id TEXT PRIMARY KEY, at REAL NOT NULL);
CREATE TABLE IF NOT EXISTS uids_freed (uid INTEGER PRIMARY KEY, at REAL NOT NULL);
CREATE TABLE IF NOT EXISTS credentials (
    instance_id TEXT NOT NULL,
    generation INTEGER NOT NULL,
    sealed BLOB NOT NULL,
    expires_at REAL,
    PRIMARY KEY (instance_id, generation)
);
CREATE TABLE IF NOT EXISTS backup_keys (instance_id TEXT PRIMARY KEY, sealed BLOB NOT NULL);
CREATE TABLE IF NOT EXISTS wal_chains (
    chain_id TEXT PRIMARY KEY,
    instance_id TEXT NOT NULL,
    timeline INTEGER NOT NULL,
    system_id TEXT NOT NULL,
    first_segment INTEGER NOT NULL,
    next_segment INTEGER NOT NULL,
    began_at REAL NOT NULL,
    newest_at REAL,
    newest_position INTEGER NOT NULL,
    is_settled INTEGER NOT NULL DEFAULT 0,
    ended_at REAL,
    gap TEXT,
    partial_bytes INTEGER NOT NULL DEFAULT 0,
    log_cursor TEXT NOT NULL DEFAULT ''
);
CREATE TABLE IF NOT EXISTS wal_marks (
    chain_id TEXT NOT NULL, segment INTEGER NOT NULL, at REAL NOT NULL,
    PRIMARY KEY (chain_id, segment)
);
CREATE TABLE IF NOT EXISTS wal_bases (
    backup_id TEXT PRIMARY KEY,
    chain_id TEXT NOT NULL,
    instance_id TEXT NOT NULL,
    first_segment INTEGER NOT NULL,
    consistent_at REAL NOT NULL
);
CREATE TABLE IF NOT EXISTS backup_copies (
    backup_id TEXT PRIMARY KEY, instance_id TEXT NOT NULL, copied_at REAL NOT NULL
);
CREATE TABLE IF NOT EXISTS backup_parents (
    backup_id TEXT PRIMARY KEY, instance_id TEXT NOT NULL, parent_id TEXT NOT NULL
);
CREATE TABLE IF NOT EXISTS backup_marks (
    instance_id TEXT PRIMARY KEY,
    backup_id TEXT NOT NULL,
    sha256 TEXT NOT NULL,
    increments INTEGER NOT NULL,
    full_at REAL NOT NULL
);
CREATE TABLE IF NOT EXISTS wal_copies (
    chain_id TEXT PRIMARY KEY,
    instance_id TEXT NOT NULL,
    next_segment INTEGER NOT NULL,
    partial_bytes INTEGER NOT NULL,
    until REAL NOT NULL
);
CREATE TABLE IF NOT EXISTS restored_from (
    instance_id TEXT PRIMARY KEY, backup_id TEXT NOT NULL, is_copy INTEGER NOT NULL
);
CREATE TABLE IF NOT EXISTS lost_data (
    instance_id TEXT PRIMARY KEY, at REAL NOT NULL, prepared INTEGER NOT NULL
);
CREATE TABLE IF NOT EXISTS migrations (
    migration_id TEXT PRIMARY KEY, instance_id TEXT NOT NULL, document TEXT NOT NULL, sealed BLOB
);
CREATE TABLE IF NOT EXISTS answers (
    key TEXT PRIMARY KEY, status INTEGER NOT NULL, body BLOB NOT NULL, at REAL NOT NULL
);
CREATE TABLE IF NOT EXISTS leases (
    operation TEXT PRIMARY KEY, lease INTEGER NOT NULL, at REAL NOT NULL
);
CREATE TABLE IF NOT EXISTS heard (nonce TEXT PRIMARY KEY, signed_at INTEGER NOT NULL);
CREATE TABLE IF NOT EXISTS burned (jti TEXT PRIMARY KEY, expires_at REAL NOT NULL);
CREATE TABLE IF NOT EXISTS rotated (instance_id TEXT PRIMARY KEY, at REAL NOT NULL);
CREATE TABLE IF NOT EXISTS console_sessions (
    key TEXT PRIMARY KEY,
    instance_id TEXT NOT NULL,
    name TEXT NOT NULL,
    begun_at REAL NOT NULL,
    used_at REAL NOT NULL,
    holder TEXT NOT NULL DEFAULT '',
    person TEXT NOT NULL DEFAULT ''
);
CREATE TABLE IF NOT EXISTS acme_accounts (
    directory TEXT PRIMARY KEY, sealed BLOB NOT NULL, url TEXT
);
CREATE TABLE IF NOT EXISTS acme_domains (host TEXT PRIMARY KEY, standing TEXT NOT NULL);
CREATE TABLE IF NOT EXISTS acme_orders (
    host TEXT PRIMARY KEY, directory TEXT NOT NULL, url TEXT NOT NULL, sealed BLOB NOT NULL
);
"""


# Of a former version, which kept the nonces for as long after they were heard.
FORMER_NONCES = """
INSERT OR IGNORE INTO heard SELECT nonce, CAST(until - 600 AS INTEGER) FROM nonces;
DROP TABLE nonces;
"""
# Of former versions, which gave no uid again.
FORMER_ERASURES = """
INSERT OR IGNORE INTO erasures SELECT instance_id, at FROM erased ORDER BY at;
INSERT OR IGNORE INTO uids_freed SELECT uid, at FROM erased;
DROP TABLE erased;
"""
# Of former versions, which did not know who began a session, or archived no log files.
ADDED = {"console_sessions": ("holder", "person"), "wal_chains": ("log_cursor",)}

# What passes without anybody's changing a statement. Each is told apart by the lower byte.
_LACKS: Final = {
    sqlite3.SQLITE_FULL: "the cell's disk has no space left",
    sqlite3.SQLITE_READONLY: "the cell's database cannot be written",
    sqlite3.SQLITE_IOERR: "the cell's disk cannot be read or written",
    sqlite3.SQLITE_CANTOPEN: "the cell's database cannot be opened",
    sqlite3.SQLITE_BUSY: "the cell's database is locked",
}
RETRY_AFTER_S: Final = 5

log = structlog.get_logger("cell.database")


class Database:
    """Every call is short and runs where it is made; the cell's event loop is its only user.

    All raise Unavailable while the disk does not let them.
    """

    def __init__(self, path: Path) -> None:
        self._file = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
        path.chmod(0o600)
        # FULL: a password that was handed out must still open its database after a power cut.
        # secure_delete: what is erased is not left lying in free pages.
        for pragma in ("journal_mode=WAL", "synchronous=FULL", "secure_delete=ON"):
            self._file.execute(f"PRAGMA {pragma}").fetchall()
        self._file.executescript(SCHEMA)
        for table, moved in (("nonces", FORMER_NONCES), ("erased", FORMER_ERASURES)):
            if self.row("SELECT 1 FROM sqlite_master WHERE name = ?", table):
                self._file.executescript(f"BEGIN;{moved}COMMIT;")
        for table, names in ADDED.items():
            known = {name for (name,) in self.rows("SELECT name FROM pragma_table_info(?)", table)}
            for name in (each for each in names if each not in known):
                added = f"ALTER TABLE {table} ADD COLUMN {name} TEXT NOT NULL DEFAULT ''"
                self._file.execute(added)

    def rows(self, statement: str, *values: Any) -> list[tuple[Any, ...]]:
        with _told():
            return self._file.execute(statement, values).fetchall()

    def row(self, statement: str, *values: Any) -> tuple[Any, ...] | None:
        with _told():
            found: tuple[Any, ...] | None = self._file.execute(statement, values).fetchone()
        return found

    def write(self, statement: str, *values: Any) -> int:
        """How many rows it changed."""
        with _told():
            return self._file.execute(statement, values).rowcount

    def note(self, statement: str, *values: Any) -> int:
        """As `write`, without waiting for the disk: outlives this process, not a power cut."""
        self._file.execute("PRAGMA synchronous=NORMAL")
        try:
            return self.write(statement, *values)
        finally:
            self._file.execute("PRAGMA synchronous=FULL")

    @contextmanager
    def transaction(self) -> Iterator[None]:
        with _told():
            self._file.execute("BEGIN IMMEDIATE")
        try:
            yield
            with _told():
                self._file.execute("COMMIT")
        except BaseException:
            # On a full disk SQLite may have done so by itself.
            if self._file.in_transaction:
                self._file.execute("ROLLBACK")
            raise

    def close(self) -> None:
        self._file.close()


@contextmanager
def _told() -> Iterator[None]:
    """What the disk does not let us do as a 503, for whoever asked."""
    try:
        yield
    except sqlite3.OperationalError as error:
        lack = _LACKS.get(error.sqlite_errorcode & 0xFF)
        if lack is None:
            raise
        log.error("cell.database_unavailable", reason=str(error))  # noqa: TRY400 - one line
        raise Unavailable(lack, headers={"Retry-After": str(RETRY_AFTER_S)}) from error
