"""The backup store of the fake cell, in the file that it shares with other processes."""

import hashlib
import sqlite3
import time
from datetime import UTC, datetime
from typing import Final

from control.cells.answer_checks import Answer

SCHEMA: Final = """
CREATE TABLE IF NOT EXISTS backups (id TEXT PRIMARY KEY, instance_id TEXT NOT NULL, told TEXT);
"""

ARCHIVING: Final = {
    "wanted": False,
    "status": "off",
    "reason": None,
    "newest_at": None,
    "needs_base": False,
    "gap": None,
    "ranges": [],
}


def stored(file: sqlite3.Connection, instance_id: str) -> list[str]:
    """The ids of the instance's backups."""
    query = "SELECT id FROM backups WHERE instance_id = ? ORDER BY id"
    return [row[0] for row in file.execute(query, (instance_id,)).fetchall()]


def told(backup_id: str, kind: str) -> Answer:
    """What a cell says of one that it has just made."""
    moment = datetime.fromtimestamp(time.time(), UTC).isoformat(timespec="milliseconds")
    return {
        "backup_id": backup_id,
        "kind": kind,
        "engine": "duckdb",
        "engine_version": "1.5",
        "size_bytes": 4096,
        "stored_bytes": 1024,
        "started_at": moment,
        "completed_at": moment,
        "sha256": hashlib.sha256(backup_id.encode()).hexdigest(),
        "extensions": [],
        "wal_chain_id": None,
        "consistent_at": None,
        "verification": {"method": "restored", "at": moment, "digest": "0" * 64, "notice": None},
    }
