"""Owns batches: which tasks were done together, and how they went."""

import sqlite3
from collections import Counter
from collections.abc import Sequence
from typing import Any, Final

import orjson

from instance_services.search.task_views import duration
from instance_services.search.tasks import Filters

_COLUMNS: Final = "batch_uid, index_uid, type, status, details, started_at, finished_at"


class BatchHistory:
    """Of one instance, over a connection of the caller's thread.

    A batch is what its tasks say, of those that the caller may see.
    """

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection

    def get(self, uid: int, allowed: Sequence[str] | None) -> dict[str, Any] | None:
        found = self._views([uid], allowed)
        return found[0] if found else None

    def page(
        self,
        filters: Filters,
        *,
        limit: int = 20,
        start: int | None = None,
        reverse: bool = False,
    ) -> dict[str, Any]:
        """Those with a task that is meant, newest first; `next` is the first of the page after."""
        where, values = filters.sql()
        where += " AND batch_uid IS NOT NULL"
        (total,) = self._connection.execute(
            f"SELECT count(DISTINCT batch_uid) FROM tasks WHERE {where}",  # noqa: S608 - bound
            values,
        ).fetchone()
        if start is not None:
            where, values = f"{where} AND batch_uid {'>=' if reverse else '<='} ?", [*values, start]
        order = "ASC" if reverse else "DESC"
        found = self._connection.execute(
            f"SELECT DISTINCT batch_uid FROM tasks WHERE {where}"  # noqa: S608 - values are bound
            f" ORDER BY batch_uid {order} LIMIT ?",
            [*values, limit + 1],
        ).fetchall()
        uids = [uid for (uid,) in found]
        results = self._views(uids[:limit], filters.allowed)
        return {
            "results": results,
            "total": total,
            "limit": limit,
            "from": results[0]["uid"] if results else None,
            "next": uids[limit] if len(uids) > limit else None,
        }

    def _views(self, uids: Sequence[int], allowed: Sequence[str] | None) -> list[dict[str, Any]]:
        where, values = Filters(batch_uids=uids, allowed=allowed).sql()
        tasks: dict[int, list[Sequence[Any]]] = {}
        for row in self._connection.execute(
            f"SELECT {_COLUMNS} FROM tasks WHERE {where} ORDER BY uid",  # noqa: S608 - bound
            values,
        ):
            tasks.setdefault(row[0], []).append(row)
        return [_view(uid, tasks[uid]) for uid in uids if uid in tasks]


def _view(uid: int, rows: Sequence[Sequence[Any]]) -> dict[str, Any]:
    _, indexes, types, statuses, details, started, finished = zip(*rows, strict=True)
    began = min(filter(None, started), default=None)
    ended = None if None in finished else max(finished)
    return {
        "uid": uid,
        "progress": None,
        "details": _summed([orjson.loads(each) for each in details if each]),
        "stats": {
            "totalNbTasks": len(rows),
            "status": dict(Counter(statuses)),
            "types": dict(Counter(types)),
            "indexUids": dict(Counter(filter(None, indexes))),
            "progressTrace": {},
        },
        "duration": duration(began, ended),
        "startedAt": began,
        "finishedAt": ended,
        "batchStrategy": "changes of documents of one index are done together, all others alone",
    }


def _summed(details: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Numbers are added; of anything else, the first that is something."""
    found: dict[str, Any] = {}
    for each in details:
        for name, value in each.items():
            before = found.get(name)
            both = (before, value)
            if all(isinstance(one, int) and not isinstance(one, bool) for one in both):
                found[name] = before + value
            elif before is None:
                found[name] = value
    return found
