"""Moving windows in the shared database: one count for all replicas, by the database's clock."""

from bisect import bisect_right
from collections.abc import Sequence

from control.boundary.windows import Count, Use, Window
from storage import rate_windows
from storage.database import Database
from storage.rate_windows import Moments


class DatabaseMeter:
    """One row a key with the moments of its requests, locked while it is counted: exact."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def charge(self, key: str, windows: Sequence[Window]) -> Count:
        with self._database.write() as db:
            hits = rate_windows.lock(db, key)
            now_ms = int(self._database.now(db).timestamp() * 1000)
            if hits:
                # A clock set back must not put a request before those there are.
                now_ms = max(now_ms, hits[-1])
            del hits[: _outside(hits, now_ms, max(window.length_s for window in windows))]
            allowed = not any(use.full for use in _uses(hits, now_ms, windows))
            if allowed:
                hits.append(now_ms)
                rate_windows.keep(db, key, hits)
        return Count(allowed, _uses(hits, now_ms, windows))


def _outside(hits: Moments, now_ms: int, length_s: int) -> int:
    return bisect_right(hits, now_ms - length_s * 1000)


def _uses(hits: Moments, now_ms: int, windows: Sequence[Window]) -> tuple[Use, ...]:
    uses = []
    for window in windows:
        first = _outside(hits, now_ms, window.length_s)
        oldest_ms = hits[first] if first < len(hits) else now_ms
        reset_s = (oldest_ms - now_ms) / 1000 + window.length_s
        uses.append(Use(window, len(hits) - first, reset_s))
    return tuple(uses)
