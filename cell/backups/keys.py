"""The keys of backups: one of each instance, sealed in the cell and wrapped for its recovery key.

The recovery key is an age identity (X25519). Its public half, the recipient, is all that a cell
needs; the other half opens every backup, also once the cell and its database are gone.
"""

import os
from pathlib import Path

import structlog

from cell.backups.sealed_objects import KEY_BYTES
from cell.database import Database
from cell.layout import write_atomically
from cell.sealing import Sealer

log = structlog.get_logger("cell.backups")

REMEDY = "take it away to a safe place: it opens all backups, also once this cell is lost"


class RecoveryError(Exception):
    """There is no recovery key to wrap keys for, or it is none."""


class BackupKeys:
    """256 random bits for each instance, from its first backup until it is erased."""

    def __init__(self, database: Database, sealer: Sealer) -> None:
        self._database = database
        self._sealer = sealer

    def find(self, instance_id: str) -> bytes | None:
        row = self._database.row(
            "SELECT sealed FROM backup_keys WHERE instance_id = ?", instance_id
        )
        return None if row is None else bytes.fromhex(self._sealer.open(row[0], instance_id))

    def of(self, instance_id: str) -> bytes:
        """Made where there is none; in the database when this returns."""
        if (found := self.find(instance_id)) is not None:
            return found
        key = os.urandom(KEY_BYTES)
        self.adopt(instance_id, key)
        return key

    def adopt(self, instance_id: str, key: bytes) -> None:
        """One that another cell has made."""
        self._database.write(
            "INSERT INTO backup_keys VALUES (?, ?)",
            instance_id,
            self._sealer.seal(key.hex(), instance_id),
        )

    def instances(self) -> list[str]:
        """Those that may have something in the store."""
        rows = self._database.rows("SELECT instance_id FROM backup_keys ORDER BY instance_id")
        return [name for (name,) in rows]

    def erase(self, instance_id: str) -> None:
        self._database.write("DELETE FROM backup_keys WHERE instance_id = ?", instance_id)


class Recovery:
    """Wraps keys for a recipient (`age1…`); without one, for that of an identity made in `home`.

    The file with that identity may be taken away to a safe place: what is kept beside it suffices.
    """

    def __init__(self, home: Path, recipient: str = "") -> None:
        self._identity = home / "recovery.key"
        self._public = home / "recovery.pub"
        self._told = recipient

    def wrap(self, key: bytes) -> bytes:
        """Raises RecoveryError."""
        import pyrage  # noqa: PLC0415 - needed for backups only

        try:
            recipient = pyrage.x25519.Recipient.from_str(self._told or self._made())
            return bytes(pyrage.encrypt(key, [recipient]))
        except (pyrage.RecipientError, pyrage.EncryptError, OSError) as error:
            raise RecoveryError(f"keys cannot be wrapped for the recovery key: {error}") from error

    def unwrap(self, wrapped: bytes) -> bytes:
        """With the identity in the home, where somebody has put it. Raises RecoveryError."""
        try:
            identity = self._identity.read_text()
        except OSError as error:
            raise RecoveryError(
                "the key of the backups was lost with the former cell: the operator must put"
                " recovery.key into the cell's home"
            ) from error
        return unwrap(identity, wrapped)

    def _made(self) -> str:
        import pyrage  # noqa: PLC0415 - see above

        if not self._public.exists():
            made = pyrage.x25519.Identity.generate()
            # The identity first: a recipient without it would be one that nobody can be.
            write_atomically(self._identity, f"{made}\n".encode())
            write_atomically(self._public, f"{made.to_public()}\n".encode())
            log.warning("cell.recovery_key_made", remedy=REMEDY, path=str(self._identity))
        return self._public.read_text().strip()


def unwrap(identity: str, wrapped: bytes) -> bytes:
    """With the recovery key, as it stands in its file. Raises RecoveryError."""
    import pyrage  # noqa: PLC0415 - see above

    try:
        known = pyrage.x25519.Identity.from_str(identity.strip())
        return bytes(pyrage.decrypt(wrapped, [known]))
    except (pyrage.IdentityError, pyrage.DecryptError) as error:
        raise RecoveryError(f"the recovery key does not open it: {error}") from error
