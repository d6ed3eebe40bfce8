"""Credentials: made here, kept sealed, several valid at once while a rotation overlaps."""

import secrets
import time
from dataclasses import dataclass

from cell.database import Database
from cell.sealing import Sealer

PASSWORD_BYTES = 32


@dataclass(frozen=True)
class Credential:
    """`expires_at` (unix seconds) is set once a newer one exists."""

    generation: int
    password: str
    expires_at: float | None

    def __repr__(self) -> str:
        # A repr ends up in logs.
        return f"<Credential {self.generation}>"


class Credentials:
    def __init__(self, database: Database, sealer: Sealer) -> None:
        self._database = database
        self._sealer = sealer

    def valid(self, instance_id: str) -> list[Credential]:
        """Newest first; empty for an instance that never had one."""
        now = time.time()
        return [each for each in self._kept(instance_id) if (each.expires_at or now + 1) > now]

    def ended(self, instance_id: str) -> list[Credential]:
        """Those that the engine may still take, for it was not told yet; newest first."""
        now = time.time()
        return [each for each in self._kept(instance_id) if (each.expires_at or now + 1) <= now]

    def _kept(self, instance_id: str) -> list[Credential]:
        rows = self._database.rows(
            "SELECT generation, sealed, expires_at FROM credentials WHERE instance_id = ?"
            " ORDER BY generation DESC",
            instance_id,
        )
        return [
            Credential(number, self._sealer.open(sealed, f"{instance_id}:{number}"), expires_at)
            for number, sealed, expires_at in rows
        ]

    def generation(self, instance_id: str) -> tuple[int, float | None]:
        """The newest one's number (0: none yet), and until when an older one is valid too."""
        found = self._database.row(
            "SELECT max(generation), max(expires_at) FROM credentials WHERE instance_id = ?",
            instance_id,
        )
        number, overlap_until = found or (0, None)
        return number or 0, overlap_until

    def make(self, instance_id: str, overlap_s: float) -> Credential:
        """A new one; those before it stay valid for `overlap_s` at most."""
        number = self.generation(instance_id)[0] + 1
        password = secrets.token_urlsafe(PASSWORD_BYTES)
        sealed = self._sealer.seal(password, f"{instance_id}:{number}")
        until = time.time() + overlap_s
        with self._database.transaction():
            self._database.write(
                "UPDATE credentials SET expires_at = min(coalesce(expires_at, ?), ?)"
                " WHERE instance_id = ?",
                *(until, until, instance_id),
            )
            self._database.write(
                "INSERT INTO credentials VALUES (?, ?, ?, NULL)", instance_id, number, sealed
            )
        return Credential(number, password, None)

    def expired(self) -> list[str]:
        """The instances that have a credential whose overlap has ended."""
        rows = self._database.rows(
            "SELECT DISTINCT instance_id FROM credentials WHERE expires_at <= ?", time.time()
        )
        return [name for (name,) in rows]

    def forget_expired(self, instance_id: str, before: float) -> None:
        """Those that had expired at `before` (unix seconds)."""
        self._database.write(
            "DELETE FROM credentials WHERE instance_id = ? AND expires_at <= ?",
            *(instance_id, before),
        )

    def erase(self, instance_id: str) -> None:
        self._database.write("DELETE FROM credentials WHERE instance_id = ?", instance_id)
