"""Owns what tasks do: they change indexes and documents, in whole batches or not at all.

The candidates of new documents are committed first, then the database, then the candidates of
former ones are removed: whoever reads in between finds one whole state (snapshots.py).
"""

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import orjson
import structlog

from instance_services.search import allowance, candidates, configuration, databases, rows
from instance_services.search.clock import Clock, system_clock, written
from instance_services.search.errors import ApiError, described
from instance_services.search.index_changes import IndexChanges
from instance_services.search.tasks import QUEUE_LIMITS, Outcome, QueueLimits, Task, TaskQueue

log = structlog.get_logger()

BATCH_MAX: Final = 200
"""Tasks that are applied together."""
BATCH_BYTES_MAX: Final = 8 * 2**20
"""What these bring, unless the first alone brings more: it is all in memory, many times over."""
_REASON_MAX: Final = 300
_TOO_LARGE: Final = (
    "the task needs more memory than indexing has, half of the size's; nothing of it was done. "
    "Send fewer documents at once, or choose a larger size"
)


class Indexer:
    """There is one for an instance, in a process of its own."""

    def __init__(
        self,
        folder: Path,
        clock: Clock = system_clock,
        limits: QueueLimits = QUEUE_LIMITS,
        *,
        storage_bytes: int | None = None,
    ) -> None:
        self._tasks = databases.open_tasks(folder)
        self._queue = TaskQueue(self._tasks, clock, limits)
        self._data = databases.open_data(folder)
        self._clock = clock
        self._storage_bytes = storage_bytes
        self._is_full = False
        self._alone_until = -1
        self._folder = folder / databases.CANDIDATES
        self._opening = folder / databases.OPENING
        self._writers: dict[int, candidates.CandidateWriter] = {}

    def recover(self, *, after_crash: bool = False) -> None:
        """What a former process left: finished batches are told, others wait again.

        A batch that ended the process, as for want of memory, is done again task by task, and a
        task that did so again, alone, fails.
        """
        self._tell_applied()
        if after_crash:
            found, before = self._queue.suspect()
            self._alone_until = max(found, default=-1)
            if len(found) == 1 and found[0] in before:
                self._fail_one(found[0])
        self._queue.put_back()
        numbers = [number for (number,) in self._data.execute("SELECT number FROM indexes")]
        missing = [number for number in numbers if self._is_missing(number)]
        if missing:
            self._opening.touch()
        for number in missing:
            self._make_again(number)
        self._opening.unlink(missing_ok=True)

    def step(self) -> bool:
        """Does what waits, a batch; False where nothing does."""
        self._queue.prune()
        batch = self._queue.claim(self._most(), BATCH_BYTES_MAX)
        if not batch:
            return False
        if batch[0].type in {"taskCancelation", "taskDeletion"}:
            self._change_tasks(batch[0])
            return True
        try:
            self._apply(batch)
        except Exception as error:
            if allowance.is_short_of_memory(error):
                raise
            log.error("a batch failed", reason=repr(error)[:_REASON_MAX])  # noqa: TRY400 - with a reason
            self._fail(batch, error)
        self._tell_applied()
        self._remove_stale()
        return True

    def _most(self) -> int:
        """How many tasks are applied together."""
        if self._alone_until < 0:
            return BATCH_MAX
        if not self._queue.is_waiting(self._alone_until):
            self._alone_until = -1
            return BATCH_MAX
        return 1

    def _change_tasks(self, task: Task) -> None:
        uids = orjson.loads(task.payload)["uids"]
        if task.type == "taskCancelation":
            member, count = "canceledTasks", self._queue.cancel(uids, task.uid)
        else:
            member, count = "deletedTasks", self._queue.delete(uids)
        details = task.details | {member: count}
        self._queue.finish({task.uid: Outcome("succeeded", details)})

    def _fail(self, batch: list[Task], error: Exception) -> None:
        """Nothing of the batch was done: its transaction is lost, as when the storage is full."""
        # What they were told of it is not committed.
        self._writers.clear()
        told = _told(error)
        self._queue.finish({task.uid: Outcome("failed", _failed(task), told) for task in batch})

    def _fail_one(self, uid: int) -> None:
        """A task that the former process was at when it ended."""
        found = self._queue.get(uid)
        assert found is not None
        task = Task(uid, found["indexUid"], found["type"], found["details"] or {}, b"")
        log.error("a task ended the indexing process", task=uid)
        told = described("internal", _TOO_LARGE)
        self._queue.finish({uid: Outcome("failed", _failed(task), told)})

    def _apply(self, batch: list[Task]) -> None:
        connections = (self._tasks, self._data)
        self._is_full = allowance.is_full(
            self._storage_bytes, *connections, candidates=self._folder
        )
        with self._transaction():
            changes = IndexChanges(self._data, written(self._clock()))
            for task in batch:
                outcome = self._outcome(changes, task)
                self._data.execute(
                    "INSERT OR REPLACE INTO applied VALUES (?, ?, ?, ?)",
                    (task.uid, outcome.status, _json(outcome.details), _json(outcome.error)),
                )
            self._index(changes)
            self._data.execute("UPDATE generation SET number = number + 1")

    def _outcome(self, changes: IndexChanges, task: Task) -> Outcome:
        """Of one task; what one that fails has changed is taken back."""
        self._data.execute("SAVEPOINT task")
        changes.begin()
        try:
            if self._is_full:
                allowance.refuse_growth(task.type)
            details = changes.apply(task)
        except ApiError as error:
            failed = described(error.code, error.detail)
        except Exception as error:
            if not self._data.in_transaction or allowance.is_short_of_memory(error):
                raise
            reason = repr(error)[:_REASON_MAX]
            log.error("a task failed", task=task.uid, reason=reason)  # noqa: TRY400 - with a reason
            failed = _told(error)
        else:
            self._data.execute("RELEASE task")
            return Outcome("succeeded", details)
        self._data.execute("ROLLBACK TO task")
        self._data.execute("RELEASE task")
        changes.take_back()
        return Outcome("failed", _failed(task), failed)

    def _index(self, changes: IndexChanges) -> None:
        """Candidates of what is new; those of what was there are stale once this is committed."""
        for number in changes.anew:
            self._put(number, None)
        for number, documents in changes.added.items():
            if number not in changes.anew:
                self._put(number, documents)

    def _put(self, number: int, documents: set[int] | None) -> None:
        """The candidates of these documents, or of all, as the index's settings have them."""
        row = self._data.execute(
            "SELECT settings FROM indexes WHERE number = ?", (number,)
        ).fetchone()
        if row is None:
            return
        searchable = configuration.complete(orjson.loads(row[0]))["searchableAttributes"]
        where, values = "index_number = ?", [number]
        if documents is not None:
            # The sign keeps SQLite from looking at every document of the index instead.
            where = "+index_number = ? AND id IN (SELECT value FROM json_each(?))"
            values.append(orjson.dumps(list(documents)).decode())  # type: ignore[arg-type]
        writer = self._writer(number)
        found = self._data.execute(
            f"SELECT id, words FROM documents WHERE {where}",  # noqa: S608 - values are bound
            values,
        )
        for document, packed in found:
            writer.add(document, rows.searched_words(packed, searchable))
        writer.commit()

    def _unfinished(self, number: int) -> Path:
        """There while candidates are made again: from the first moment on there are some."""
        return self._folder / f"{number}.unfinished"

    def _is_missing(self, number: int) -> bool:
        if self._unfinished(number).exists():
            candidates.erase(self._folder, number)
        return not candidates.exists(self._folder, number)

    def _make_again(self, number: int) -> None:
        log.info("candidates are made again", index=number)
        self._folder.mkdir(exist_ok=True)
        self._unfinished(number).touch()
        with self._transaction():
            self._put(number, None)
            self._data.execute("DELETE FROM stale WHERE index_number = ?", (number,))
        self._unfinished(number).unlink()

    def _tell_applied(self) -> None:
        found = self._data.execute("SELECT task, status, details, error FROM applied").fetchall()
        if found:
            self._queue.finish(
                {
                    uid: Outcome(status, _parsed(details), _parsed(error))
                    for uid, status, details, error in found
                }
            )
            self._data.execute("DELETE FROM applied")

    def _remove_stale(self) -> None:
        """Candidates that the database does not have any more, and folders of former indexes."""
        known = {number for (number,) in self._data.execute("SELECT number FROM indexes")}
        found = self._data.execute("SELECT index_number, document FROM stale").fetchall()
        for number in {number for number, _ in found} & known:
            writer = self._writer(number)
            for of, document in found:
                if of == number:
                    writer.remove(document)
            writer.commit()
        if found:
            self._data.execute("DELETE FROM stale")
        for place in self._folder.glob("*"):
            if place.name.isdecimal() and int(place.name) not in known:
                self._writers.pop(int(place.name), None)
                candidates.erase(self._folder, int(place.name))

    def _writer(self, number: int) -> candidates.CandidateWriter:
        if number not in self._writers:
            # Each has buffers of its own.
            self._writers.clear()
            self._writers[number] = candidates.CandidateWriter(self._folder, number)
        return self._writers[number]

    @contextmanager
    def _transaction(self) -> Iterator[None]:
        self._data.execute("BEGIN IMMEDIATE")
        try:
            yield
        except BaseException:
            # An error of SQLite may have ended it already.
            if self._data.in_transaction:
                self._data.execute("ROLLBACK")
            raise
        self._data.execute("COMMIT")

    def close(self) -> None:
        self._writers.clear()
        self._data.close()


def _told(error: Exception) -> dict[str, str]:
    """For whoever asked for the task, of an error that is not theirs."""
    full = isinstance(error, sqlite3.OperationalError) and "full" in str(error)
    code = "no_space_left_on_device" if full else "internal"
    reason = "the storage is full" if full else "of an internal error"
    return described(code, f"the task failed because {reason}; nothing of it was done")


def _failed(task: Task) -> dict[str, Any]:
    """What a failed task tells of what it did: nothing was indexed or deleted."""
    names = {
        "documentAdditionOrUpdate": "indexedDocuments",
        "documentDeletion": "deletedDocuments",
        "indexDeletion": "deletedDocuments",
    }
    member = names.get(task.type)
    return task.details if member is None else task.details | {member: 0}


def _json(value: Any) -> str | None:
    return None if value is None else orjson.dumps(value).decode()


def _parsed(text: str | None) -> Any:
    return None if text is None else orjson.loads(text)
