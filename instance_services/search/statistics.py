"""Owns the figures of indexes: how many documents, which fields, how much storage."""

import sqlite3
from typing import Any

from instance_services.search import databases
from instance_services.search.boundary import SearchService
from instance_services.search.callers import KeyBearer
from instance_services.search.vectors import FIELD


def of_index(
    service: SearchService, data: sqlite3.Connection, number: int, uid: str
) -> dict[str, Any]:
    """Fields are counted by their names at the top of documents."""
    count, size = data.execute(
        "SELECT count(*), coalesce(sum(length(body)), 0) FROM documents WHERE index_number = ?",
        (number,),
    ).fetchone()
    fields = data.execute(
        "SELECT member.key, count(*) FROM documents, json_each(CAST(body AS TEXT)) AS member"
        " WHERE index_number = ? AND member.key <> ? GROUP BY member.key",
        (number, FIELD),
    )
    vectors, embedded = data.execute(
        "SELECT count(*), count(DISTINCT document) FROM vectors WHERE index_number = ?", (number,)
    ).fetchone()
    return {
        "numberOfDocuments": count,
        "rawDocumentDbSize": size,
        "avgDocumentSize": size // count if count else 0,
        "isIndexing": _is_indexing(service, uid),
        "numberOfEmbeddings": vectors,
        "numberOfEmbeddedDocuments": embedded,
        "fieldDistribution": dict(fields),
    }


def of_all(service: SearchService, data: sqlite3.Connection, caller: KeyBearer) -> dict[str, Any]:
    rows = data.execute("SELECT number, uid, updated_at FROM indexes ORDER BY uid").fetchall()
    own = [row for row in rows if caller.may_use(row[1])]
    size = sum(
        path.stat().st_size
        for name in (databases.DATA, databases.TASKS)
        if (path := service.folder / name).exists()
    )
    return {
        "databaseSize": size,
        "usedDatabaseSize": size,
        "lastUpdate": max((row[2] for row in own), default=None),
        "indexes": {uid: of_index(service, data, number, uid) for number, uid, _ in own},
    }


def _is_indexing(service: SearchService, uid: str) -> bool:
    found = service.snapshots.tasks.execute(
        "SELECT 1 FROM tasks WHERE status = 'processing' AND index_uid = ? LIMIT 1", (uid,)
    ).fetchone()
    return found is not None
