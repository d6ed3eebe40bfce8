"""Owns the queue of tasks: accepting, listing, canceling, and what becomes of each."""

import itertools
import sqlite3
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Final

import orjson

from instance_services.search import task_views
from instance_services.search.clock import Clock, system_clock, written
from instance_services.search.errors import ApiError

STATUSES: Final = ("enqueued", "processing", "succeeded", "failed", "canceled")
TYPES: Final = (
    *("documentAdditionOrUpdate", "documentDeletion", "settingsUpdate", "indexCreation"),
    *("indexDeletion", "indexUpdate", "indexSwap", "taskCancelation", "taskDeletion"),
    *("documentEdition", "dumpCreation", "snapshotCreation", "export", "upgradeDatabase"),
    *("indexCompaction", "networkTopologyChange"),
)
"""Those of the original; this engine has tasks of the first nine."""
OF_DOCUMENTS: Final = frozenset({"documentAdditionOrUpdate", "documentDeletion"})
_WAITING: Final = "SELECT uid, index_uid, type, payload_bytes FROM tasks WHERE status = 'enqueued'"
_FINISHED: Final = ("succeeded", "failed", "canceled")
_FIRST: Final = ("taskCancelation", "taskDeletion")
"""Types that are done before all others, in this order."""


@dataclass(frozen=True)
class QueueLimits:
    """From `tasks` on, the `pruned` oldest finished ones are deleted.

    None is accepted while `tasks + pruned` are there, or what waits has `payload_bytes`.
    """

    tasks: int = 1_000_000
    pruned: int = 100_000
    payload_bytes: int = 10 * 2**30


QUEUE_LIMITS: Final = QueueLimits()


@dataclass(frozen=True)
class Task:
    """One that waits, as the indexer reads it; `payload` is what its type needs."""

    uid: int
    index_uid: str | None
    type: str
    details: dict[str, Any]
    payload: bytes


@dataclass(frozen=True)
class _Waiting:
    """One that waits, as a row of `_WAITING`: without what it brings."""

    uid: int
    index_uid: str | None
    type: str
    size_bytes: int


@dataclass(frozen=True)
class Outcome:
    status: str
    details: dict[str, Any] | None
    error: dict[str, Any] | None = None


class TaskQueue:
    """The tasks of one instance, over a connection of the caller's thread."""

    def __init__(
        self,
        connection: sqlite3.Connection,
        clock: Clock = system_clock,
        limits: QueueLimits = QUEUE_LIMITS,
    ) -> None:
        self._connection = connection
        self._clock = clock
        self._limits = limits

    def accept(
        self,
        kind: str,
        index_uid: str | None,
        details: Mapping[str, Any],
        payload: bytes = b"",
    ) -> dict[str, Any]:
        """A new task, on disk when this returns; its summary, as a 202 has it.

        Raises ApiError where there is no room for it.
        """
        now = written(self._clock())
        with self._transaction():
            if kind not in _FIRST:
                self._check_room(len(payload))
            (uid,) = self._connection.execute(
                "UPDATE queue SET next_task = next_task + 1 RETURNING next_task - 1"
            ).fetchone()
            self._connection.execute(
                "INSERT INTO tasks (uid, index_uid, type, status, details, payload, payload_bytes,"
                " enqueued_at) VALUES (?, ?, ?, 'enqueued', ?, ?, ?, ?)",
                (uid, index_uid, kind, orjson.dumps(details).decode(), payload, len(payload), now),
            )
        return {
            "taskUid": uid,
            "indexUid": index_uid,
            "status": "enqueued",
            "type": kind,
            "enqueuedAt": now,
        }

    def get(self, uid: int) -> dict[str, Any] | None:
        row = self._connection.execute(
            f"SELECT {task_views.COLUMNS} FROM tasks WHERE uid = ?",  # noqa: S608 - our own columns
            (uid,),
        ).fetchone()
        return None if row is None else task_views.view(row)

    def page(
        self,
        filters: "Filters",
        *,
        limit: int = 20,
        start: int | None = None,
        reverse: bool = False,
    ) -> dict[str, Any]:
        """Newest first, from the uid `start` on; `next` is the first uid of the page after."""
        where, values = filters.sql()
        (total,) = self._connection.execute(
            f"SELECT count(*) FROM tasks WHERE {where}",  # noqa: S608 - values are bound
            values,
        ).fetchone()
        if start is not None:
            where, values = f"{where} AND uid {'>=' if reverse else '<='} ?", [*values, start]
        order = "ASC" if reverse else "DESC"
        rows = self._connection.execute(
            f"SELECT {task_views.COLUMNS} FROM tasks WHERE {where}"  # noqa: S608 - values are bound
            f" ORDER BY uid {order} LIMIT ?",
            [*values, limit + 1],
        ).fetchall()
        results = [task_views.view(row) for row in rows[:limit]]
        return {
            "results": results,
            "total": total,
            "limit": limit,
            "from": results[0]["uid"] if results else None,
            "next": rows[limit][0] if len(rows) > limit else None,
        }

    def uids(self, filters: "Filters") -> list[int]:
        where, values = filters.sql()
        sql = f"SELECT uid FROM tasks WHERE {where}"  # noqa: S608 - values are bound
        return [uid for (uid,) in self._connection.execute(sql, values)]

    def suspect(self) -> tuple[list[int], set[int]]:
        """Of those being processed when the process ended: their uids, and whom it was before."""
        found = self.uids(Filters(statuses=["processing"]))
        with self._transaction():
            before = {uid for (uid,) in self._connection.execute("SELECT uid FROM suspects")}
            self._connection.execute("DELETE FROM suspects")
            self._connection.executemany(
                "INSERT INTO suspects VALUES (?)", [(uid,) for uid in found]
            )
        return found, before

    def put_back(self) -> None:
        """After an end amid a batch, what was being processed waits again."""
        self._connection.execute(
            "UPDATE tasks SET status = 'enqueued', started_at = NULL, batch_uid = NULL"
            " WHERE status = 'processing'"
        )

    def is_waiting(self, last: int) -> bool:
        """Whether a task up to this one waits."""
        sql = "SELECT 1 FROM tasks WHERE status = 'enqueued' AND uid <= ? LIMIT 1"
        return self._connection.execute(sql, (last,)).fetchone() is not None

    def prune(self) -> None:
        """Has the oldest finished tasks deleted where there are too many, by a task as well."""
        (tasks,) = self._connection.execute("SELECT tasks FROM queue").fetchone()
        if tasks < self._limits.tasks:
            return
        oldest = self._connection.execute(
            "SELECT uid FROM tasks WHERE status IN ('succeeded', 'failed', 'canceled')"
            " ORDER BY uid LIMIT ?",
            (self._limits.pruned,),
        ).fetchall()
        # Fewer would be those that deleted others, again and again.
        if len(oldest) < self._limits.pruned:
            return
        uids = [uid for (uid,) in oldest]
        details = {
            "matchedTasks": len(uids),
            "deletedTasks": None,
            "originalFilter": f"?from={uids[-1]}&limit={len(uids)}&statuses={','.join(_FINISHED)}",
        }
        self.accept("taskDeletion", None, details, orjson.dumps({"uids": uids}))

    def claim(self, most: int, bytes_max: int) -> list[Task]:
        """What is processed next, and together: a cancelation, or the oldest task.

        With the changes of documents of its index that follow it in the index's order, as long as
        all that they bring is no more than so many bytes. They are marked before what they bring is
        read: if that does not fit into memory, it is known which they were.
        """
        now = written(self._clock())
        with self._transaction():
            first = self._next()
            if first is None:
                return []
            uids = [first.uid, *self._following(first, most - 1, bytes_max)]
            marks = ", ".join("?" * len(uids))
            (number,) = self._connection.execute(
                "UPDATE queue SET next_batch = next_batch + 1 RETURNING next_batch - 1"
            ).fetchone()
            self._connection.execute(
                "UPDATE tasks SET status = 'processing', started_at = ?,"  # noqa: S608 - bound
                f" batch_uid = ? WHERE uid IN ({marks})",
                [now, number, *uids],
            )
        return [self._task(uid) for uid in uids]

    def finish(self, outcomes: Mapping[int, Outcome]) -> None:
        now = written(self._clock())
        with self._transaction():
            for uid, outcome in outcomes.items():
                self._connection.execute(
                    "UPDATE tasks SET status = ?, details = ?, error = ?, finished_at = ?,"
                    " started_at = coalesce(started_at, ?), payload = NULL, payload_bytes = 0"
                    " WHERE uid = ? AND status IN ('enqueued', 'processing')",
                    (
                        outcome.status,
                        _json(outcome.details),
                        _json(outcome.error),
                        now,
                        now,
                        uid,
                    ),
                )

    def cancel(self, uids: Sequence[int], by: int) -> int:
        """Of those that still wait; how many there were."""
        now = written(self._clock())
        with self._transaction():
            found = self._connection.execute(
                "UPDATE tasks SET status = 'canceled', canceled_by = ?, finished_at = ?,"
                " payload = NULL, payload_bytes = 0,"
                " batch_uid = (SELECT batch_uid FROM tasks WHERE uid = ?)"
                " WHERE status = 'enqueued' AND uid <> ?"
                " AND uid IN (SELECT value FROM json_each(?))",
                (by, now, by, by, orjson.dumps(list(uids)).decode()),
            )
            return found.rowcount

    def delete(self, uids: Sequence[int]) -> int:
        """Of those that are finished; how many there were."""
        found = self._connection.execute(
            "DELETE FROM tasks WHERE status NOT IN ('enqueued', 'processing')"
            " AND uid IN (SELECT value FROM json_each(?))",
            (orjson.dumps(list(uids)).decode(),),
        )
        return found.rowcount

    def _next(self) -> "_Waiting | None":
        for kind in _FIRST:
            row = self._connection.execute(
                f"{_WAITING} AND type = ? ORDER BY uid LIMIT 1", (kind,)
            ).fetchone()
            if row is not None:
                return _Waiting(*row)
        row = self._connection.execute(f"{_WAITING} ORDER BY uid LIMIT 1").fetchone()
        return None if row is None else _Waiting(*row)

    def _check_room(self, size_bytes: int) -> None:
        """Finished tasks are deleted in time: what is too much waits."""
        tasks, waiting_bytes = self._connection.execute(
            "SELECT tasks, payload_bytes FROM queue"
        ).fetchone()
        limits = self._limits
        many = tasks >= limits.tasks + limits.pruned
        if many or waiting_bytes + size_bytes > limits.payload_bytes:
            raise ApiError(
                "no_space_left_on_device",
                "too many tasks wait, or they are too large; wait until some are done, or cancel "
                "or delete some",
            )

    def _following(self, first: "_Waiting", most: int, bytes_max: int) -> list[int]:
        if first.type not in OF_DOCUMENTS:
            return []
        rows = self._connection.execute(
            f"{_WAITING} AND uid > ? AND (index_uid = ? OR index_uid IS NULL) ORDER BY uid LIMIT ?",
            (first.uid, first.index_uid, most),
        )
        found: list[int] = []
        size_bytes = first.size_bytes
        for task in itertools.starmap(_Waiting, rows):
            size_bytes += task.size_bytes
            if task.type not in OF_DOCUMENTS or size_bytes > bytes_max:
                break
            found.append(task.uid)
        return found

    def _task(self, uid: int) -> Task:
        index_uid, kind, details, payload = self._connection.execute(
            "SELECT index_uid, type, details, payload FROM tasks WHERE uid = ?", (uid,)
        ).fetchone()
        return Task(uid, index_uid, kind, orjson.loads(details), payload or b"")

    @contextmanager
    def _transaction(self) -> Iterator[None]:
        self._connection.execute("BEGIN IMMEDIATE")
        try:
            yield
            self._connection.execute("COMMIT")
        except BaseException as error:
            # An error of SQLite may have ended it already.
            if self._connection.in_transaction:
                self._connection.execute("ROLLBACK")
            if isinstance(error, sqlite3.OperationalError) and "full" in str(error):
                raise ApiError("no_space_left_on_device", "the storage is full") from error
            raise


@dataclass(frozen=True)
class Filters:
    """What tasks are meant; None is all. Times are as they are written."""

    uids: Sequence[int] | None = None
    batch_uids: Sequence[int] | None = None
    statuses: Sequence[str] | None = None
    types: Sequence[str] | None = None
    index_uids: Sequence[str] | None = None
    canceled_by: Sequence[int] | None = None
    times: tuple[tuple[str, str, str], ...] = ()
    """(column, operator, instant)"""
    allowed: Sequence[str] | None = None
    """The indexes that the caller's key is for, as patterns."""

    def sql(self) -> tuple[str, list[Any]]:
        parts, values = ["1"], []
        for column, wanted in (
            ("uid", self.uids),
            ("batch_uid", self.batch_uids),
            ("status", self.statuses),
            ("type", self.types),
            ("index_uid", self.index_uids),
            ("canceled_by", self.canceled_by),
        ):
            if wanted is not None:
                parts.append(f"{column} IN (SELECT value FROM json_each(?))")  # noqa: S608 - ours
                values.append(orjson.dumps(list(wanted)).decode())
        for column, operator, instant in self.times:
            parts.append(f"{column} {operator} ?")
            values.append(instant)
        if self.allowed is not None:
            parts.append(
                "EXISTS (SELECT 1 FROM json_each(?) WHERE index_uid = value OR (value LIKE '%*'"
                " AND substr(index_uid, 1, length(value) - 1) = substr(value, 1,"
                " length(value) - 1)))"
            )
            values.append(orjson.dumps(list(self.allowed)).decode())
        return " AND ".join(parts), values


def _json(value: Any) -> str | None:
    return None if value is None else orjson.dumps(value).decode()
