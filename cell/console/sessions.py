"""Sessions of the console: a secret in somebody's browser, of which the cell keeps the hash."""

import hashlib
import secrets
import time
from collections.abc import Callable
from dataclasses import dataclass

from cell.database import Database

SECRET_BYTES = 32
IDLE_S = 30 * 60.0
LASTS_S = 8 * 3600.0
# An older one ends where more are begun: nobody works in so many.
PER_INSTANCE_MAX = 50


@dataclass(frozen=True)
class ConsoleSession:
    """`name` is the instance's, as it was when the session began; `person` is who began it."""

    key: str
    instance_id: str
    name: str
    person: str = ""


class ConsoleSessions:
    def __init__(self, database: Database, clock: Callable[[], float] = time.time) -> None:
        self._database = database
        self._clock = clock

    def begin(self, instance_id: str, name: str, holder: str = "", person: str = "") -> str:
        """The secret, which is told once."""
        secret = secrets.token_urlsafe(SECRET_BYTES)
        now = self._clock()
        with self._database.transaction():
            self._database.write(
                "INSERT INTO console_sessions VALUES (?, ?, ?, ?, ?, ?, ?)",
                *(_hash(secret), instance_id, name, now, now, holder, person),
            )
            self._database.write(
                "DELETE FROM console_sessions WHERE instance_id = ? AND key NOT IN"
                " (SELECT key FROM console_sessions WHERE instance_id = ?"
                " ORDER BY used_at DESC, rowid DESC LIMIT ?)",
                *(instance_id, instance_id, PER_INSTANCE_MAX),
            )
        return secret

    def find(self, instance_id: str, secret: str) -> ConsoleSession | None:
        """One that has not ended, of this instance; it is used, and so not idle, from now on."""
        key, now = _hash(secret), self._clock()
        found = self._database.row(
            "SELECT name, person FROM console_sessions WHERE key = ? AND instance_id = ?"
            " AND used_at > ? AND begun_at > ?",
            *(key, instance_id, now - IDLE_S, now - LASTS_S),
        )
        if found is None:
            return None
        self._database.note("UPDATE console_sessions SET used_at = ? WHERE key = ?", now, key)
        return ConsoleSession(key, instance_id, *found)

    def end(self, key: str) -> None:
        self._database.write("DELETE FROM console_sessions WHERE key = ?", key)

    def end_all(self, instance_id: str) -> None:
        self._database.write("DELETE FROM console_sessions WHERE instance_id = ?", instance_id)

    def holders(self) -> set[tuple[str, str]]:
        """Each instance, and who has a session of it that has not ended."""
        now = self._clock()
        found = self._database.rows(
            "SELECT DISTINCT instance_id, holder FROM console_sessions"
            " WHERE holder <> '' AND used_at > ? AND begun_at > ?",
            *(now - IDLE_S, now - LASTS_S),
        )
        return {(instance_id, holder) for instance_id, holder in found}

    def end_of(self, instance_id: str, holder: str) -> set[str]:
        """The keys of the sessions that have ended by it."""
        rows = self._database.rows(
            "DELETE FROM console_sessions WHERE instance_id = ? AND holder = ? RETURNING key",
            *(instance_id, holder),
        )
        return {key for (key,) in rows}

    def forget_ended(self) -> None:
        now = self._clock()
        self._database.write(
            "DELETE FROM console_sessions WHERE used_at <= ? OR begun_at <= ?",
            *(now - IDLE_S, now - LASTS_S),
        )


def _hash(secret: str) -> str:
    """Of 256 random bits, so that a plain hash tells nothing."""
    return hashlib.sha256(secret.encode(errors="replace")).hexdigest()
