"""Which uid an instance's engine runs as: a new one each, then those of erased instances."""

import time
from collections.abc import Callable

from cell.database import Database


class NoUidError(Exception):
    """Every uid of the cell belongs to an instance, or to what an erased one has left."""


class Uids:
    """Every uid that was given is in `instances` or `uids_freed`, so the highest of them stays."""

    def __init__(self, database: Database, uids: range, in_use: Callable[[], set[int]]) -> None:
        """`uids` are this cell's alone; `in_use` answers those that have processes or files."""
        self._database = database
        self._range = (uids.start, uids.stop)
        self._in_use = in_use
        self._knows_all = False

    def take(self) -> int:
        """One that no instance ever had, while there are such: files left behind fall to nobody.

        Then the one that was freed longest ago and that nothing is left of. For a transaction that
        gives it to an instance. Raises NoUidError.
        """
        first, stop = self._range
        highest = self._database.row(
            "SELECT max(uid) FROM (SELECT uid FROM instances UNION ALL SELECT uid FROM uids_freed)"
            " WHERE uid >= ? AND uid < ?",
            *self._range,
        )
        fresh = first if highest is None or highest[0] is None else highest[0] + 1
        return fresh if fresh < stop else self._again()

    def is_mine(self, uid: int) -> bool:
        first, stop = self._range
        return first <= uid < stop

    def take_for_a_while(self) -> int:
        """For what is no instance: it counts as freed, and is not given while it is in use."""
        with self._database.transaction():
            uid = self.take()
            self.free(uid)
        return uid

    def free(self, uid: int) -> None:
        """Of an instance that was erased, in the transaction that forgets it."""
        self._database.write("INSERT OR REPLACE INTO uids_freed VALUES (?, ?)", uid, time.time())

    def _again(self) -> int:
        self._note_forgotten()
        in_use = self._in_use()
        # One more than can be in use.
        freed = self._database.rows(
            "SELECT uid FROM uids_freed WHERE uid >= ? AND uid < ? ORDER BY at, uid LIMIT ?",
            *self._range,
            len(in_use) + 1,
        )
        found = next((uid for (uid,) in freed if uid not in in_use), None)
        if found is None:
            first, stop = self._range
            raise NoUidError(
                f"the cell has no user ID left for another instance: it has {stop - first}, and "
                "reuses those of erased instances once nothing of them remains"
            )
        self._database.write("DELETE FROM uids_freed WHERE uid = ?", found)
        return int(found)

    def _note_forgotten(self) -> None:
        """Those that former versions gave and forgot; once, as it looks at the whole range."""
        if not self._knows_all:
            self._database.write(
                "INSERT OR IGNORE INTO uids_freed WITH RECURSIVE every (uid) AS"
                " (VALUES (?) UNION ALL SELECT uid + 1 FROM every WHERE uid + 1 < ?)"
                " SELECT uid, 0 FROM every WHERE uid NOT IN (SELECT uid FROM instances)",
                *self._range,
            )
            self._knows_all = True
