"""The backup store of the fake cell, in the file that it shares with other processes."""

import hashlib
import sqlite3
import time
from datetime import UTC, datetime
from typing import Final

import orjson

from control.cells.answer_checks import Answer
from control.cells.client import CellFailed, CellRefused

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

COPIES: Final = {
    "wanted": False,
    "status": "off",
    "reason": None,
    "waiting": 0,
    "copied": 0,
    "newest_at": None,
    "restorable_until": None,
}


def stored(file: sqlite3.Connection, instance_id: str) -> list[str]:
    """The ids of the instance's backups."""
    query = "SELECT id FROM backups WHERE instance_id = ? ORDER BY id"
    return [row[0] for row in file.execute(query, (instance_id,)).fetchall()]


def taken_over(
    file: sqlite3.Connection, instance_id: str, observed: Answer | None, known: list[str], key: str
) -> Answer:
    """All that are in the store, oldest first; their key is had from any that is known, or all."""
    answered = file.execute("SELECT answer FROM answers WHERE key = ?", (key,)).fetchone()
    if answered is not None:
        return dict(orjson.loads(answered[0]))
    if observed is not None and not observed["data_lost"]:
        raise CellRefused("the cell has the data of the instance")
    query = "SELECT told FROM backups WHERE instance_id = ? ORDER BY id"
    rows = file.execute(query, (instance_id,)).fetchall()
    items = [dict(orjson.loads(row[0])) for row in rows]
    if known and items and not {each["sha256"] for each in items} & set(known):
        raise CellFailed("the control plane does not know of the backup")
    answer = {"items": items}
    file.execute("INSERT INTO answers VALUES (?, ?)", (key, orjson.dumps(answer).decode()))
    file.execute("INSERT INTO effects VALUES ('take_over_backups', ?)", (instance_id,))
    return answer


def told(backup_id: str, kind: str) -> Answer:
    """What a cell says of one that it has just made."""
    moment = datetime.fromtimestamp(time.time(), UTC).isoformat(timespec="milliseconds")
    return {
        "backup_id": backup_id,
        "kind": kind,
        "method": "full",
        "parent_id": None,
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
