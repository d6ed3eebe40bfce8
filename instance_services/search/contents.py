"""Owns reading all that there is, for whoever compares a copy with what it was made of."""

import hashlib
import sqlite3
from typing import Any

import orjson

from instance_services.search.errors import ApiError


def of_indexes(data: sqlite3.Connection) -> dict[str, dict[str, Any]]:
    """By uid: how many documents there are, and a digest of them and of the settings.

    Raises ApiError where the database is damaged, also where it holds none of these.
    """
    try:
        (found,) = data.execute("PRAGMA integrity_check(1)").fetchone()
        if found != "ok":
            raise _damaged()
        return _indexes(data)
    except (sqlite3.Error, ValueError):
        raise _damaged() from None


def _indexes(data: sqlite3.Connection) -> dict[str, dict[str, Any]]:
    rows = data.execute("SELECT number, uid, primary_key, settings FROM indexes").fetchall()
    return {uid: _of_index(data, number, *others) for number, uid, *others in rows}


def of_keys(tasks: sqlite3.Connection) -> str:
    """A digest of all but their values, which follow from a master key."""
    rows = tasks.execute(
        "SELECT uid, name, description, actions, indexes, expires_at FROM keys ORDER BY uid"
    )
    return hashlib.sha256(orjson.dumps([list(row) for row in rows])).hexdigest()


def _of_index(
    data: sqlite3.Connection, number: int, primary_key: str | None, settings: str
) -> dict[str, Any]:
    digest = hashlib.sha256(orjson.dumps([primary_key, settings]))
    count = 0
    for key, body, words in data.execute(
        "SELECT key, body, words FROM documents WHERE index_number = ? ORDER BY key", (number,)
    ):
        # The database has no checksums: what was written as JSON must be some still.
        orjson.loads(body)
        orjson.loads(words)
        for part in (key.encode(), body, words):
            digest.update(len(part).to_bytes(8))
            digest.update(part)
        count += 1
    return {"documents": count, "digest": digest.hexdigest()}


def _damaged() -> ApiError:
    return ApiError("internal", "the database is damaged; restore a backup")
