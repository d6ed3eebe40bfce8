"""Owns the changes that tasks make to the rows of indexes and documents, in one transaction."""

import sqlite3
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Final, Self

import orjson

from instance_services.search import configuration, document_ids, filters, rows, texts, vectors
from instance_services.search.errors import ApiError
from instance_services.search.selecting import Selection
from instance_services.search.tasks import Task


@dataclass(frozen=True)
class IndexingRules:
    """What settings say of how a document is kept: `patterns` name attributes with values."""

    patterns: list[str]
    tokenizer: texts.Tokenizer
    embedders: dict[str, Any]

    @classmethod
    def of(cls, settings: dict[str, Any]) -> Self:
        return cls(
            configuration.indexed_paths(settings),
            texts.tokenizer(settings),
            settings["embedders"],
        )

    def words(self, document: dict[str, Any]) -> bytes:
        return rows.packed_words(document, self.tokenizer)


class IndexChanges:
    """`added` by index: documents whose candidates are new; `anew`: indexes that are made again."""

    def __init__(self, data: sqlite3.Connection, now: str) -> None:
        self._data = data
        self._now = now
        self.added: dict[int, set[int]] = {}
        self.anew: set[int] = set()
        self._before: tuple[dict[int, set[int]], set[int]] = ({}, set())

    def begin(self) -> None:
        self._before = ({number: set(each) for number, each in self.added.items()}, set(self.anew))

    def take_back(self) -> None:
        self.added, self.anew = self._before

    def apply(self, task: Task) -> dict[str, Any]:
        """The task's details. Raises ApiError where it fails."""
        return _CHANGES[task.type](self, task)

    def add_documents(self, task: Task) -> dict[str, Any]:
        given = orjson.loads(task.payload)
        number, primary_key, settings = self._index(task, make=True)
        named = given["primaryKey"]
        if primary_key is None or (named is not None and named != primary_key):
            primary_key = self._set_primary_key(number, primary_key, given)
        rules = IndexingRules.of(settings)
        count = 0
        for document in given["documents"]:
            key = document_ids.key_of(document, primary_key)
            self._put(number, key, document, rules, is_partial=given["isPartial"])
            count += 1
        self._touch(number)
        return task.details | {"indexedDocuments": count}

    def delete_documents(self, task: Task) -> dict[str, Any]:
        given = orjson.loads(task.payload)
        number, _, settings = self._index(task)
        if "ids" in given:
            deleted = sum(self._remove(number, key) for key in given["ids"])
        else:
            deleted = self._remove_found(number, settings, given.get("filter"))
        self._touch(number)
        return task.details | {"deletedDocuments": deleted}

    def change_settings(self, task: Task) -> dict[str, Any]:
        number, _, before = self._index(task, make=True)
        changes = orjson.loads(task.payload)
        (text,) = self._data.execute(
            "SELECT settings FROM indexes WHERE number = ?", (number,)
        ).fetchone()
        stored = configuration.changed(orjson.loads(text), changes)
        after = configuration.complete(stored)
        self._data.execute(
            "UPDATE indexes SET settings = ? WHERE number = ?",
            (orjson.dumps(stored).decode(), number),
        )
        if configuration.needs_indexing(before, after):
            self._index_again(number, IndexingRules.of(after))
        self._touch(number)
        return task.details

    def create_index(self, task: Task) -> dict[str, Any]:
        if self._find(task.index_uid) is not None:
            raise ApiError("index_already_exists", f"the index `{task.index_uid}` already exists")
        self._make(str(task.index_uid), orjson.loads(task.payload)["primaryKey"])
        return task.details

    def update_index(self, task: Task) -> dict[str, Any]:
        number, before, _ = self._index(task)
        given = orjson.loads(task.payload)
        primary_key = given["primaryKey"]
        if primary_key is not None and primary_key != before:
            self._refuse_primary_key(number, before)
            self._data.execute(
                "UPDATE indexes SET primary_key = ? WHERE number = ?", (primary_key, number)
            )
        if given["uid"] is not None and given["uid"] != task.index_uid:
            if self._find(given["uid"]) is not None:
                raise ApiError("index_already_exists", f"the index `{given['uid']}` already exists")
            self._data.execute(
                "UPDATE indexes SET uid = ? WHERE number = ?", (given["uid"], number)
            )
        self._touch(number)
        return task.details

    def delete_index(self, task: Task) -> dict[str, Any]:
        number, _, settings = self._index(task)
        deleted = self._remove_found(number, settings, None)
        self._data.execute("DELETE FROM indexes WHERE number = ?", (number,))
        self.added.pop(number, None)
        self.anew.discard(number)
        return task.details | {"deletedDocuments": deleted}

    def swap_indexes(self, task: Task) -> dict[str, Any]:
        for swap in orjson.loads(task.payload)["swaps"]:
            found = [self._find(uid) for uid in swap["indexes"]]
            missing = [uid for uid, row in zip(swap["indexes"], found, strict=True) if row is None]
            if missing:
                raise ApiError(
                    "index_not_found", f"there is no index `{'` and no index `'.join(missing)}`"
                )
            one, other = (int(row[0]) for row in found if row is not None)
            for uid, number in (
                (f"\0{one}", one),
                (swap["indexes"][0], other),
                (swap["indexes"][1], one),
            ):
                self._data.execute("UPDATE indexes SET uid = ? WHERE number = ?", (uid, number))
        return task.details

    def _index(self, task: Task, *, make: bool = False) -> tuple[int, str | None, dict[str, Any]]:
        """The number, the primary key and all settings of the task's index."""
        row = self._find(task.index_uid)
        if row is None:
            if not make:
                raise ApiError("index_not_found", f"there is no index `{task.index_uid}`")
            row = (self._make(str(task.index_uid), None), None, "{}")
        return int(row[0]), row[1], configuration.complete(orjson.loads(row[2]))

    def _find(self, uid: str | None) -> tuple[int, str | None, str] | None:
        found: tuple[int, str | None, str] | None = self._data.execute(
            "SELECT number, primary_key, settings FROM indexes WHERE uid = ?", (uid,)
        ).fetchone()
        return found

    def _make(self, uid: str, primary_key: str | None) -> int:
        (number,) = self._data.execute(
            "INSERT INTO indexes (uid, primary_key, settings, created_at, updated_at)"
            " VALUES (?, ?, '{}', ?, ?) RETURNING number",
            (uid, primary_key, self._now, self._now),
        ).fetchone()
        self.added.setdefault(int(number), set())
        return int(number)

    def _touch(self, number: int) -> None:
        self._data.execute(
            "UPDATE indexes SET updated_at = ? WHERE number = ?", (self._now, number)
        )

    def _set_primary_key(self, number: int, before: str | None, given: dict[str, Any]) -> str:
        named: str | None = given["primaryKey"]
        if before is not None:
            self._refuse_primary_key(number, before)
        if named is None:
            if not given["documents"]:
                return "id"
            named = document_ids.primary_key_of(given["documents"][0])
        self._data.execute("UPDATE indexes SET primary_key = ? WHERE number = ?", (named, number))
        return named

    def _refuse_primary_key(self, number: int, before: str | None) -> None:
        has = self._data.execute(
            "SELECT 1 FROM documents WHERE index_number = ? LIMIT 1", (number,)
        ).fetchone()
        if before is not None and has is not None:
            raise ApiError(
                "index_primary_key_already_exists",
                f"the index has documents by the primary key `{before}`; delete them to have "
                "another",
            )

    def _put(
        self,
        number: int,
        key: str,
        document: dict[str, Any],
        rules: IndexingRules,
        *,
        is_partial: bool,
    ) -> None:
        before = self._data.execute(
            "SELECT place, body FROM documents WHERE index_number = ? AND key = ?", (number, key)
        ).fetchone()
        place = None
        if before is not None:
            place = before[0]
            if is_partial:
                document = vectors.merged(orjson.loads(before[1]), document)
            self._remove(number, key)
        (made,) = self._data.execute(
            "INSERT INTO documents (index_number, key, place, body, words)"
            " VALUES (?, ?, ?, ?, ?) RETURNING id",
            (number, key, place or 0, orjson.dumps(document), rules.words(document)),
        ).fetchone()
        if place is None:
            self._data.execute("UPDATE documents SET place = id WHERE id = ?", (made,))
        self._put_values(number, made, document, rules)
        self.added.setdefault(number, set()).add(made)

    def _put_values(
        self, number: int, made: int, document: dict[str, Any], rules: IndexingRules
    ) -> None:
        self._data.executemany(
            "INSERT INTO field_values (index_number, path, kind, text, number, original, document)"
            " VALUES (?, ?, ?, ?, ?, ?, ?)",
            ((number, *value, made) for value in rows.field_values(document, rules.patterns)),
        )
        self._data.executemany(
            "INSERT INTO vectors (index_number, embedder, document, vector) VALUES (?, ?, ?, ?)",
            (
                (number, name, made, packed)
                for name, packed in vectors.of_document(document, rules.embedders)
            ),
        )

    def _remove(self, number: int, key: str) -> int:
        row = self._data.execute(
            "DELETE FROM documents WHERE index_number = ? AND key = ? RETURNING id", (number, key)
        ).fetchone()
        if row is None:
            return 0
        self._data.execute("DELETE FROM field_values WHERE document = ?", row)
        self._data.execute("DELETE FROM vectors WHERE document = ?", row)
        self._data.execute("INSERT INTO stale VALUES (?, ?)", (number, row[0]))
        self.added.get(number, set()).discard(row[0])
        return 1

    def _remove_found(self, number: int, settings: dict[str, Any], given: Any) -> int:
        """What a filter finds; everything without one."""
        node = None
        if given is not None:
            try:
                node = filters.parse(given)
            except filters.FilterError as error:
                raise ApiError("invalid_document_filter", str(error)) from None
        found = Selection(self._data, number, settings).ids(node, "invalid_document_filter")
        keys = list(self._keys(found))
        return sum(self._remove(number, key) for key in keys)

    def _keys(self, found: set[int]) -> Iterator[str]:
        for (key,) in self._data.execute(
            "SELECT key FROM documents WHERE id IN (SELECT value FROM json_each(?))",
            (orjson.dumps(list(found)).decode(),),
        ).fetchall():
            yield key

    def _index_again(self, number: int, rules: IndexingRules) -> None:
        self._data.execute("DELETE FROM field_values WHERE index_number = ?", (number,))
        self._data.execute("DELETE FROM vectors WHERE index_number = ?", (number,))
        place = made = 0
        while True:
            # As the database has them in order: by their numbers, all would be sorted each time.
            row = self._data.execute(
                "SELECT place, id, body FROM documents WHERE index_number = ?"
                " AND (place, id) > (?, ?) ORDER BY place, id LIMIT 1",
                (number, place, made),
            ).fetchone()
            if row is None:
                break
            place, made, body = row
            document = orjson.loads(body)
            self._data.execute(
                "UPDATE documents SET words = ? WHERE id = ?", (rules.words(document), made)
            )
            self._put_values(number, made, document, rules)
        self.anew.add(number)


_CHANGES: Final[dict[str, Callable[[IndexChanges, Task], dict[str, Any]]]] = {
    "documentAdditionOrUpdate": IndexChanges.add_documents,
    "documentDeletion": IndexChanges.delete_documents,
    "settingsUpdate": IndexChanges.change_settings,
    "indexCreation": IndexChanges.create_index,
    "indexUpdate": IndexChanges.update_index,
    "indexDeletion": IndexChanges.delete_index,
    "indexSwap": IndexChanges.swap_indexes,
}
