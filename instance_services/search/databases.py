"""Owns the files of an instance: two SQLite databases, and a folder of candidates.

`tasks.db` has what was asked for and the keys, and is written in short transactions. `data.db` has
indexes and their documents, and is written by the indexing process alone, one transaction a batch.
What is in `candidates` is made of `data.db` and can be made again.
"""

import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Final

TASKS: Final = "tasks.db"
DATA: Final = "data.db"
CANDIDATES: Final = "candidates"
OPENING: Final = "opening"
"""A file that is there while candidates are made again, before requests are answered."""
_BUSY_S: Final = 30.0
_LOG_BYTES: Final = 4 * 2**20

_TASKS_TABLES: Final = """
CREATE TABLE IF NOT EXISTS tasks (
    uid INTEGER PRIMARY KEY, index_uid TEXT, type TEXT NOT NULL, status TEXT NOT NULL,
    details TEXT, error TEXT, payload_bytes INTEGER NOT NULL, payload BLOB, canceled_by INTEGER,
    enqueued_at TEXT NOT NULL, started_at TEXT, finished_at TEXT, batch_uid INTEGER
);
CREATE INDEX IF NOT EXISTS tasks_of_status ON tasks (status, uid);
CREATE TABLE IF NOT EXISTS suspects (uid INTEGER PRIMARY KEY);
CREATE INDEX IF NOT EXISTS tasks_of_type ON tasks (status, type, uid);
CREATE INDEX IF NOT EXISTS tasks_of_batch ON tasks (batch_uid);
CREATE TABLE IF NOT EXISTS queue (
    next_task INTEGER NOT NULL, next_batch INTEGER NOT NULL,
    tasks INTEGER NOT NULL, payload_bytes INTEGER NOT NULL
);
INSERT INTO queue SELECT 0, 0, 0, 0 WHERE NOT EXISTS (SELECT 1 FROM queue);
CREATE TRIGGER IF NOT EXISTS task_added AFTER INSERT ON tasks BEGIN
    UPDATE queue SET tasks = tasks + 1, payload_bytes = payload_bytes + NEW.payload_bytes;
END;
CREATE TRIGGER IF NOT EXISTS task_deleted AFTER DELETE ON tasks BEGIN
    UPDATE queue SET tasks = tasks - 1, payload_bytes = payload_bytes - OLD.payload_bytes;
END;
CREATE TRIGGER IF NOT EXISTS payload_removed AFTER UPDATE OF payload_bytes ON tasks BEGIN
    UPDATE queue SET payload_bytes = payload_bytes + NEW.payload_bytes - OLD.payload_bytes;
END;
CREATE TABLE IF NOT EXISTS keys (
    uid TEXT PRIMARY KEY, name TEXT, description TEXT, actions TEXT NOT NULL,
    indexes TEXT NOT NULL, expires_at TEXT, created_at TEXT NOT NULL, updated_at TEXT NOT NULL
);
"""
_DATA_TABLES: Final = """
CREATE TABLE IF NOT EXISTS indexes (
    number INTEGER PRIMARY KEY AUTOINCREMENT, uid TEXT NOT NULL UNIQUE, primary_key TEXT,
    settings TEXT NOT NULL, created_at TEXT NOT NULL, updated_at TEXT NOT NULL
);
CREATE TABLE IF NOT EXISTS documents (
    id INTEGER PRIMARY KEY AUTOINCREMENT, index_number INTEGER NOT NULL, key TEXT NOT NULL,
    place INTEGER NOT NULL, body BLOB NOT NULL, words BLOB NOT NULL
);
CREATE UNIQUE INDEX IF NOT EXISTS documents_by_key ON documents (index_number, key);
CREATE INDEX IF NOT EXISTS documents_by_place ON documents (index_number, place);
CREATE TABLE IF NOT EXISTS field_values (
    index_number INTEGER NOT NULL, path TEXT NOT NULL, kind INTEGER NOT NULL,
    text TEXT, number REAL, original TEXT, document INTEGER NOT NULL
);
CREATE INDEX IF NOT EXISTS values_by_text ON field_values (index_number, path, text);
CREATE INDEX IF NOT EXISTS values_by_number ON field_values (index_number, path, number);
CREATE INDEX IF NOT EXISTS values_by_document ON field_values (document);
CREATE TABLE IF NOT EXISTS vectors (
    id INTEGER PRIMARY KEY AUTOINCREMENT, index_number INTEGER NOT NULL, embedder TEXT NOT NULL,
    document INTEGER NOT NULL, vector BLOB NOT NULL
);
CREATE INDEX IF NOT EXISTS vectors_of_embedder ON vectors (index_number, embedder, document);
CREATE INDEX IF NOT EXISTS vectors_of_document ON vectors (document);
CREATE TABLE IF NOT EXISTS applied (
    task INTEGER PRIMARY KEY, status TEXT NOT NULL, details TEXT, error TEXT
);
CREATE TABLE IF NOT EXISTS stale (index_number INTEGER NOT NULL, document INTEGER NOT NULL);
CREATE TABLE IF NOT EXISTS generation (number INTEGER NOT NULL);
INSERT INTO generation SELECT 0 WHERE NOT EXISTS (SELECT 1 FROM generation);
"""

_STEPS: Final = {TASKS: (_TASKS_TABLES,), DATA: (_DATA_TABLES,)}
"""What brings a file from one version of its tables to the next. Released steps never change: a new
one is added at the end. The first also suits files from before versions were counted."""


class NewerDataError(Exception):
    """The data were written by a later release, whose tables this one does not know."""


def open_tasks(folder: Path) -> sqlite3.Connection:
    return _opened(folder / TASKS)


def open_data(folder: Path) -> sqlite3.Connection:
    return _opened(folder / DATA)


def make(folder: Path) -> None:
    """Both databases with the tables of this release. Raises NewerDataError."""
    for name, steps in _STEPS.items():
        with closing(_opened(folder / name)) as connection:
            (version,) = connection.execute("PRAGMA user_version").fetchone()
            if version > len(steps):
                raise NewerDataError(
                    f"{name} has tables of version {version}, and this release knows those up to"
                    f" {len(steps)}: start the release that wrote them, or a later one"
                )
            connection.execute("PRAGMA journal_mode=WAL")
            for number in range(version, len(steps)):
                # In one transaction: one that is broken off is made again from its beginning.
                connection.executescript(
                    f"BEGIN IMMEDIATE; {steps[number]} PRAGMA user_version = {number + 1}; COMMIT;"
                )


def _opened(path: Path) -> sqlite3.Connection:
    # Transactions are begun and ended in words of our own.
    made = sqlite3.connect(path, _BUSY_S, isolation_level=None, check_same_thread=False)
    made.execute("PRAGMA synchronous=FULL")
    made.execute("PRAGMA foreign_keys=ON")
    # A log that one large batch has made long would keep its storage.
    made.execute(f"PRAGMA journal_size_limit={_LOG_BYTES}")
    # In a sandbox there may be no folder for files that are needed for a moment.
    made.execute("PRAGMA temp_store=MEMORY")
    return made
