"""Moving windows in the shared database: one count for all replicas, by the database's clock."""

from array import array
from bisect import bisect_right
from collections.abc import Sequence
from typing import Final

from sqlalchemy import text
from sqlalchemy.orm import Session

from control.boundary.windows import Count, Use, Window
from storage.database import Database

_SWEEP_EVERY: Final = 5_000
_SWEEP_AFTER_MS: Final = 3_600_000
_CREATION_LOCK: Final = 0x6D656E61

# What is counted is worth nothing after a minute, so the table is outside the migrations, and on
# PostgreSQL outside the write-ahead log, too.
_CREATE: Final = """
    CREATE {unlogged} TABLE IF NOT EXISTS rate_windows (
        key TEXT PRIMARY KEY, hits {binary} NOT NULL, last_ms BIGINT NOT NULL)
"""
_SELECT: Final = text("SELECT hits FROM rate_windows WHERE key = :key")
_SELECT_LOCKING: Final = text("SELECT hits FROM rate_windows WHERE key = :key FOR UPDATE")
_FIRST: Final = text(
    "INSERT INTO rate_windows (key, hits, last_ms) VALUES (:key, :hits, 0) "
    "ON CONFLICT (key) DO NOTHING"
)
_UPDATE: Final = text("UPDATE rate_windows SET hits = :hits, last_ms = :last_ms WHERE key = :key")
_SWEEP: Final = text("DELETE FROM rate_windows WHERE last_ms < :before_ms")


class DatabaseMeter:
    """One row a key with the moments of its requests, locked while it is counted: exact."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._until_sweep = _SWEEP_EVERY
        postgresql = database.dialect == "postgresql"
        self._select = _SELECT_LOCKING if postgresql else _SELECT
        create = _CREATE.format(
            unlogged="UNLOGGED" if postgresql else "", binary="BYTEA" if postgresql else "BLOB"
        )
        with database.write() as db:
            if postgresql:
                # Replicas that start together would trip over each other's CREATE.
                db.execute(text(f"SELECT pg_advisory_xact_lock({_CREATION_LOCK})"))
            db.execute(text(create))

    def charge(self, key: str, windows: Sequence[Window]) -> Count:
        with self._database.write() as db:
            hits = self._locked(db, key)
            now_ms = int(self._database.now(db).timestamp() * 1000)
            if hits:
                now_ms = max(now_ms, hits[-1])
            del hits[: _outside(hits, now_ms, max(window.length_s for window in windows))]
            allowed = not any(use.full for use in _uses(hits, now_ms, windows))
            if allowed:
                hits.append(now_ms)
                db.execute(_UPDATE, {"key": key, "hits": hits.tobytes(), "last_ms": now_ms})
            self._sweep_sometimes(db, now_ms)
        return Count(allowed, _uses(hits, now_ms, windows))

    def _locked(self, db: Session, key: str) -> "array[int]":
        found = db.execute(self._select, {"key": key}).scalar_one_or_none()
        if found is None:
            db.execute(_FIRST, {"key": key, "hits": b""})
            found = db.execute(self._select, {"key": key}).scalar_one()
        hits = array("q")
        hits.frombytes(bytes(found))
        return hits

    def _sweep_sometimes(self, db: Session, now_ms: int) -> None:
        self._until_sweep -= 1
        if self._until_sweep <= 0:
            self._until_sweep = _SWEEP_EVERY
            db.execute(_SWEEP, {"before_ms": now_ms - _SWEEP_AFTER_MS})


def _outside(hits: "array[int]", now_ms: int, length_s: int) -> int:
    return bisect_right(hits, now_ms - length_s * 1000)


def _uses(hits: "array[int]", now_ms: int, windows: Sequence[Window]) -> tuple[Use, ...]:
    uses = []
    for window in windows:
        first = _outside(hits, now_ms, window.length_s)
        oldest_ms = hits[first] if first < len(hits) else now_ms
        reset_s = (oldest_ms - now_ms) / 1000 + window.length_s
        uses.append(Use(window, len(hits) - first, reset_s))
    return tuple(uses)
