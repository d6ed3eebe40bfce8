"""Queues without PostgreSQL: the same semantics on the file of the fake cell."""

import sqlite3
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from datetime import UTC, datetime
from typing import Any

import orjson

from control.cells.queues import Answer, QueueRefused

SCHEMA = """
CREATE TABLE IF NOT EXISTS queues (
    instance_id TEXT, name TEXT, unlogged INTEGER, roles TEXT, made REAL, ids INTEGER,
    PRIMARY KEY (instance_id, name)
);
CREATE TABLE IF NOT EXISTS messages (
    instance_id TEXT, queue TEXT, id INTEGER, body TEXT, sent REAL, visible REAL, reads INTEGER,
    PRIMARY KEY (instance_id, queue, id)
);
CREATE TABLE IF NOT EXISTS acts (instance_id TEXT, key TEXT, answer TEXT,
    PRIMARY KEY (instance_id, key));
"""
TAKEN = ("_pkey", "_vt_idx", "_msg_id_seq")
Open = Callable[[], AbstractContextManager[sqlite3.Connection]]
Hook = Callable[[str, str], None]


class FakeQueues:
    """Of one instance; `open_` is a transaction that no other call is in at the same time."""

    def __init__(self, instance_id: str, open_: Open, before: Hook, after: Hook) -> None:
        self._id = instance_id
        self._open = open_
        self._before = before
        self._after = after

    def page(self, *, limit: int, after: str) -> Answer:
        query = "SELECT name FROM queues WHERE instance_id = ? AND name > ? ORDER BY name LIMIT ?"
        with self._open() as file:
            self._check_runs(file)
            names = [row[0] for row in file.execute(query, (self._id, after, limit + 1))]
            items = [self._queue(file, name) for name in names[:limit]]
        return {"items": items, "next_after": names[limit - 1] if len(names) > limit else None}

    def create(self, name: str, *, unlogged: bool, key: str) -> Answer:
        def act(file: sqlite3.Connection) -> Answer:
            if name.endswith(TAKEN):
                raise QueueRefused(422, f"{name} cannot be the name of a queue", "invalid_request")
            if self._there(file, name):
                raise QueueRefused(409, f"the instance already has a queue {name}", "queue_exists")
            row = (self._id, name, unlogged, '["service_role"]', time.time())
            file.execute("INSERT INTO queues VALUES (?, ?, ?, ?, ?, 0)", row)
            return self._queue(file, name)

        return self._once("create", key, act)

    def delete(self, name: str) -> None:
        with self._open() as file:
            self._require(file, name)
            given = (self._id, name)
            file.execute("DELETE FROM messages WHERE instance_id = ? AND queue = ?", given)
            file.execute("DELETE FROM queues WHERE instance_id = ? AND name = ?", given)

    def permit(self, name: str, roles: Sequence[str]) -> Answer:
        update = "UPDATE queues SET roles = ? WHERE instance_id = ? AND name = ?"
        with self._open() as file:
            self._require(file, name)
            file.execute(update, (orjson.dumps(sorted(roles)).decode(), self._id, name))
        return {"name": name, "data_api_roles": sorted(roles)}

    def send(
        self, name: str, messages: Sequence[Mapping[str, Any]], *, delay_s: int, key: str
    ) -> Answer:
        def act(file: sqlite3.Connection) -> Answer:
            self._require(file, name)
            now = time.time()
            given = (self._id, name)
            ids = "SELECT ids FROM queues WHERE instance_id = ? AND name = ?"
            last = file.execute(ids, given).fetchone()[0]
            made = list(range(last + 1, last + 1 + len(messages)))
            for number, message in zip(made, messages, strict=True):
                body = orjson.dumps(message).decode()
                if "\\u0000" in body:
                    raise QueueRefused(422, "the instance cannot store this", "invalid_request")
                row = (self._id, name, number, body, now, now + delay_s)
                file.execute("INSERT INTO messages VALUES (?, ?, ?, ?, ?, ?, 0)", row)
            update = "UPDATE queues SET ids = ? WHERE instance_id = ? AND name = ?"
            file.execute(update, (made[-1], *given))
            return {"message_ids": made}

        return self._once("send", key, act)

    def read(self, name: str, *, count: int, timeout_s: int) -> Answer:
        self._before("read", self._id)
        with self._open() as file:
            self._require(file, name)
            now = time.time()
            found = file.execute(
                "UPDATE messages SET visible = ?, reads = reads + 1 WHERE rowid IN ("
                "SELECT rowid FROM messages WHERE instance_id = ? AND queue = ? AND visible <= ?"
                " ORDER BY id LIMIT ?) RETURNING id, reads, sent, visible, body",
                (now + timeout_s, self._id, name, now, count),
            ).fetchall()
        self._after("read", self._id)
        return {"messages": [_message(row) for row in sorted(found)]}

    def remove(self, name: str, ids: Sequence[int], *, archive: bool, key: str) -> Answer:
        def act(file: sqlite3.Connection) -> Answer:
            self._require(file, name)
            delete = "DELETE FROM messages WHERE instance_id = ? AND queue = ? AND id = ?"
            gone = [one for one in ids if file.execute(delete, (self._id, name, one)).rowcount]
            return {"message_ids": sorted(gone)}

        return self._once("archive" if archive else "remove", key, act)

    def purge(self, name: str, *, key: str) -> Answer:
        def act(file: sqlite3.Connection) -> Answer:
            self._require(file, name)
            delete = "DELETE FROM messages WHERE instance_id = ? AND queue = ?"
            return {"purged": file.execute(delete, (self._id, name)).rowcount}

        return self._once("purge", key, act)

    def _once(self, action: str, key: str, act: Callable[[sqlite3.Connection], Answer]) -> Answer:
        self._before(action, self._id)
        with self._open() as file:
            self._check_runs(file)
            query = "SELECT answer FROM acts WHERE instance_id = ? AND key = ?"
            answered = file.execute(query, (self._id, key)).fetchone()
            if answered is not None:
                return dict(orjson.loads(answered[0]))
            answer = act(file)
            row = (self._id, key, orjson.dumps(answer).decode())
            file.execute("INSERT INTO acts VALUES (?, ?, ?)", row)
        self._after(action, self._id)
        return answer

    def _require(self, file: sqlite3.Connection, name: str) -> None:
        self._check_runs(file)
        if not self._there(file, name):
            raise QueueRefused(404, f"there is no queue {name}", "queue_not_found")

    def _there(self, file: sqlite3.Connection, name: str) -> bool:
        query = "SELECT 1 FROM queues WHERE instance_id = ? AND name = ?"
        return file.execute(query, (self._id, name)).fetchone() is not None

    def _check_runs(self, file: sqlite3.Connection) -> None:
        query = "SELECT observation FROM instances WHERE id = ?"
        row = file.execute(query, (self._id,)).fetchone()
        if row is None:
            raise QueueRefused(404, "the cell has no such instance", "not_found")
        observed = orjson.loads(row[0])
        if observed["engine"] != "postgres":
            detail = f"queues need a postgres instance; this instance is {observed['engine']}"
            raise QueueRefused(409, detail, "conflict")
        if observed["status"] != "running":
            detail = f"queues need a running instance; this instance is {observed['status']}"
            raise QueueRefused(409, detail, "conflict")

    def _queue(self, file: sqlite3.Connection, name: str) -> Answer:
        given, now = (self._id, name), time.time()
        query = "SELECT unlogged, roles, made, ids FROM queues WHERE instance_id = ? AND name = ?"
        unlogged, roles, made, ids = file.execute(query, given).fetchone()
        query = "SELECT visible, sent FROM messages WHERE instance_id = ? AND queue = ?"
        messages = file.execute(query, given).fetchall()
        depth = sum(visible <= now for visible, _ in messages)
        return {
            "name": name,
            "unlogged": bool(unlogged),
            "depth": depth,
            "hidden": len(messages) - depth,
            "total_messages": ids,
            "oldest_message_age_s": int(now - min(s for _, s in messages)) if messages else None,
            "data_api_roles": orjson.loads(roles),
            "created_at": _moment(made),
        }


def _message(row: tuple[Any, ...]) -> Answer:
    number, reads, sent, visible, body = row
    return {
        "message_id": number,
        "read_count": reads,
        "enqueued_at": _moment(sent),
        "visible_at": _moment(visible),
        "body": orjson.loads(body),
    }


def _moment(seconds: float) -> str:
    written = datetime.fromtimestamp(seconds, UTC).isoformat(timespec="milliseconds")
    return written.replace("+00:00", "Z")
