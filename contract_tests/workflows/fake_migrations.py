"""Migrations without data: the semantics of the cell API on the file of the fake cell."""

import sqlite3
import time
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from datetime import UTC, datetime, timedelta
from typing import Any, Final, Protocol

import orjson

from control.cells.answer_checks import Answer
from control.cells.client import CellRefused, InstanceUnknown

SCHEMA: Final = """
CREATE TABLE IF NOT EXISTS migrations (
    id TEXT PRIMARY KEY, instance_id TEXT NOT NULL, wanted TEXT NOT NULL, told TEXT NOT NULL
);
"""
CUT_OVER: Final = ("cutting_over", "verifying", "completed")
ENDED: Final = ("completed", "failed", "cancelled")
Open = Callable[[], AbstractContextManager[sqlite3.Connection]]


class Once(Protocol):
    def __call__(
        self,
        action: str,
        instance_id: str,
        do: Callable[[sqlite3.Connection], Answer],
        *,
        key: str,
        lease: int,
    ) -> Answer: ...


class FakeMigrations:
    """Into one instance. Nothing goes on by itself: tests say with `becomes` how far it is."""

    def __init__(self, instance_id: str, open_: Open, once: Once) -> None:
        self._id = instance_id
        self._open = open_
        self._once = once

    # What the control plane asks.

    def observe(self, migration_id: str) -> Answer | None:
        with self._open() as file:
            return self._read(file, migration_id)

    def begin(
        self, migration_id: str, wanted: Mapping[str, Any], *, key: str, lease: int
    ) -> Answer:
        asked = orjson.dumps(wanted, option=orjson.OPT_SORT_KEYS).decode()

        def act(file: sqlite3.Connection) -> Answer:
            known = self._read(file, migration_id)
            if known is None:
                self._check_free(file)
                told = new(migration_id)
                row = (migration_id, self._id, asked, orjson.dumps(told).decode())
                file.execute("INSERT INTO migrations VALUES (?, ?, ?, ?)", row)
                return told
            query = "SELECT wanted FROM migrations WHERE id = ?"
            if file.execute(query, (migration_id,)).fetchone()[0] != asked:
                raise CellRefused(f"migration {migration_id} was begun otherwise")
            return known

        return self._once("begin_migration", self._id, act, key=key, lease=lease)

    def cut_over(self, migration_id: str, keep_way_back_s: int, *, key: str, lease: int) -> Answer:
        def act(file: sqlite3.Connection) -> Answer:
            told = self._known(file, migration_id)
            if told["status"] in CUT_OVER:
                return told
            if told["status"] != "syncing":
                raise CellRefused(f"cannot cut over a migration that is {told['status']}")
            told |= {"status": "cutting_over", "keep_way_back_s": keep_way_back_s}
            self._write(file, told)
            return told

        return self._once("cut_over_migration", self._id, act, key=key, lease=lease)

    def cancel(self, migration_id: str, *, key: str, lease: int) -> Answer:
        def act(file: sqlite3.Connection) -> Answer:
            told = self._known(file, migration_id)
            told["way_back_until"] = None
            if told["status"] not in ENDED:
                told["status"] = "cancelling"
            self._write(file, told)
            return told

        return self._once("cancel_migration", self._id, act, key=key, lease=lease)

    # What tests do to it.

    def becomes(self, migration_id: str, **told: Any) -> None:
        """Something happens in the cell by itself."""
        with self._open() as file:
            self._write(file, {**self._known(file, migration_id), **told})

    def forget(self, migration_id: str) -> None:
        with self._open() as file:
            file.execute("DELETE FROM migrations WHERE id = ?", (migration_id,))

    def _check_free(self, file: sqlite3.Connection) -> None:
        if (status := self._status(file)) != "running":
            raise CellRefused(f"cannot migrate into an instance that is {status}")
        query = "SELECT id FROM migrations WHERE instance_id = ?"
        for (each,) in file.execute(query, (self._id,)).fetchall():
            told = self._known(file, each)
            if told["status"] not in ENDED:
                raise CellRefused(f"migration {each} into the instance is not finished")
            if told["way_back_until"] is not None:
                raise CellRefused(f"migration {each} into the instance has a way back")

    def _status(self, file: sqlite3.Connection) -> str:
        query = "SELECT observation FROM instances WHERE id = ?"
        row = file.execute(query, (self._id,)).fetchone()
        if row is None:
            raise InstanceUnknown(f"instance {self._id} is not here")
        return str(orjson.loads(row[0])["status"])

    def _known(self, file: sqlite3.Connection, migration_id: str) -> Answer:
        told = self._read(file, migration_id)
        if told is None:
            raise InstanceUnknown(f"migration {migration_id} is not here")
        return told

    def _read(self, file: sqlite3.Connection, migration_id: str) -> Answer | None:
        query = "SELECT told FROM migrations WHERE id = ? AND instance_id = ?"
        row = file.execute(query, (migration_id, self._id)).fetchone()
        if row is None:
            return None
        told: Answer = orjson.loads(row[0])
        if self._status(file) in {"stopped", "erased"}:
            told["way_back_until"] = None
            if told["status"] not in ENDED:
                told["status"] = "cancelled"
        return told

    def _write(self, file: sqlite3.Connection, told: Answer) -> None:
        row = (orjson.dumps(told).decode(), told["migration_id"])
        file.execute("UPDATE migrations SET told = ? WHERE id = ?", row)


def new(migration_id: str) -> Answer:
    """What a cell says of one that waits for its source."""
    known = ("reason", "source_received_at", "preflight", "progress", "verification")
    told = dict.fromkeys((*known, "way_back_until"))
    return {"migration_id": migration_id, "status": "awaiting_source", **told}


def moment(after_s: float = 0) -> str:
    at = datetime.fromtimestamp(time.time(), UTC) + timedelta(seconds=after_s)
    return at.isoformat(timespec="milliseconds")


def checked(*findings: tuple[str, str]) -> Answer:
    """A report with findings of this severity and this message."""
    return {
        "checked_at": moment(),
        "source": {"engine": "postgres", "version": "17.10", "size_bytes": 1000},
        "findings": [
            {
                "severity": severity,
                "code": "made_up",
                "object": None,
                "message": message,
                "remedy": None,
            }
            for severity, message in findings
        ],
    }


def copied(bytes_done: int, **figures: Any) -> Answer:
    """Progress of 1000 bytes."""
    unknown = ("rows_done", "tables_done", "tables_total", "lag_bytes", "lag_s", "estimated_s")
    told = {**dict.fromkeys(unknown), "bytes_done": bytes_done, "bytes_total": 1000}
    return {**told, "updated_at": moment(), **figures}


def compared(*differences: str) -> Answer:
    """A verification that found these objects different."""
    return {
        "verified_at": moment(),
        "tables_compared": 2,
        "rows_compared": 7,
        "differences": [{"object": one, "source": "1", "target": "2"} for one in differences],
        "notes": ["the contents of 5 keys were compared"],
    }
