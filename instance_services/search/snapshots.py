"""Owns reading: one whole state of an index, its rows and its candidates, beside what is written.

The indexer commits the candidates of new documents before the rows, and removes those of former
ones after. Candidates that are looked at between two equal generations of the rows have therefore
all that the rows have; what else they have is not among the rows.
"""

import sqlite3
import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import orjson

from instance_services.search import candidates, configuration, databases
from instance_services.search.allowance import Limits
from instance_services.search.answer_room import AnswerRoom
from instance_services.search.errors import ApiError
from instance_services.search.vector_store import VectorStore


@dataclass(frozen=True)
class IndexState:
    """One state of an index; `data` has a transaction that reads it, as long as this is held."""

    data: sqlite3.Connection
    searcher: Any
    number: int
    uid: str
    primary_key: str | None
    settings: dict[str, Any]
    room: AnswerRoom
    vectors: VectorStore

    def documents(self, ids: list[int]) -> dict[int, dict[str, Any]]:
        """Raises ApiError where they are more than the answer has room for."""
        (size_bytes,) = self.data.execute(
            "SELECT coalesce(sum(length(body)), 0) FROM documents"
            " WHERE id IN (SELECT value FROM json_each(?))",
            (orjson.dumps(ids).decode(),),
        ).fetchone()
        self.room.take(size_bytes)
        found = self.data.execute(
            "SELECT id, body FROM documents WHERE id IN (SELECT value FROM json_each(?))",
            (orjson.dumps(ids).decode(),),
        )
        return {each: orjson.loads(body) for each, body in found}

    def with_keys(self, keys: list[str]) -> set[int]:
        """The numbers of the documents with these ids."""
        found = self.data.execute(
            "SELECT id FROM documents WHERE index_number = ?"
            " AND key IN (SELECT value FROM json_each(?))",
            (self.number, orjson.dumps(keys).decode()),
        )
        return {each for (each,) in found}

    def in_order(self, ids: set[int]) -> list[int]:
        """As they were first added."""
        found = self.data.execute(
            "SELECT id FROM documents WHERE index_number = ? ORDER BY place", (self.number,)
        )
        return [each for (each,) in found if each in ids]


class Snapshots:
    """For all threads of a process; each has connections of its own."""

    def __init__(self, folder: Path, limits: Limits = Limits()) -> None:  # noqa: B008 - it is frozen
        self._folder = folder
        self._answer_bytes = limits.answer_bytes
        self._candidates = candidates.Candidates(folder / databases.CANDIDATES)
        self._vectors = VectorStore(limits.vector_bytes)
        self._own = threading.local()
        self._looking = threading.Lock()

    @property
    def data(self) -> sqlite3.Connection:
        if not hasattr(self._own, "data"):
            self._own.data = databases.open_data(self._folder)
            self._own.data.execute("PRAGMA query_only=ON")
        found: sqlite3.Connection = self._own.data
        return found

    @property
    def tasks(self) -> sqlite3.Connection:
        if not hasattr(self._own, "tasks"):
            self._own.tasks = databases.open_tasks(self._folder)
        found: sqlite3.Connection = self._own.tasks
        return found

    def begin(self) -> None:
        """A request, of which all answers share the room; on the thread that does it."""
        self._own.room = AnswerRoom(self._answer_bytes)

    @property
    def room(self) -> AnswerRoom:
        if not hasattr(self._own, "room"):
            self.begin()
        found: AnswerRoom = self._own.room
        return found

    @contextmanager
    def reading(self) -> Iterator[sqlite3.Connection]:
        """A transaction that reads one state of all indexes."""
        data = self.data
        data.execute("BEGIN")
        try:
            yield data
        finally:
            data.execute("COMMIT")

    @contextmanager
    def index(self, uid: str) -> Iterator[IndexState]:
        """Raises ApiError where there is none."""
        with self.indexes([uid]) as states:
            yield states[uid]

    @contextmanager
    def indexes(self, uids: Iterable[str]) -> Iterator[dict[str, IndexState]]:
        """By uid, one state of all of them. Raises ApiError where one of them does not exist."""
        wanted = list(dict.fromkeys(uids))
        while True:
            before = self._generation()
            numbers = [self._number(uid) for uid in wanted]
            with self._looking:
                searchers = [self._candidates.searcher(number) for number in numbers]
            with self.reading() as data:
                if self._generation() != before:
                    continue
                found = zip(wanted, numbers, searchers, strict=True)
                yield {uid: self._state(data, *each) for uid, *each in found}
                return

    def _state(self, data: sqlite3.Connection, number: int, searcher: Any) -> IndexState:
        uid, primary_key, settings = data.execute(
            "SELECT uid, primary_key, settings FROM indexes WHERE number = ?", (number,)
        ).fetchone()
        complete = configuration.complete(orjson.loads(settings))
        return IndexState(
            data, searcher, number, uid, primary_key, complete, self.room, self._vectors
        )

    def _generation(self) -> int:
        (found,) = self.data.execute("SELECT number FROM generation").fetchone()
        return int(found)

    def _number(self, uid: str) -> int:
        row = self.data.execute("SELECT number FROM indexes WHERE uid = ?", (uid,)).fetchone()
        if row is None:
            raise ApiError("index_not_found", f"there is no index `{uid}`")
        return int(row[0])
