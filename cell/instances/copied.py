"""What the cell knows to be in the second store: backups, and how far the WAL of chains is."""

from dataclasses import dataclass

from cell.database import Database


@dataclass
class WalCopy:
    """All segments before `next_segment` are copied, and of that one so many bytes.

    With these, every moment of the chain up to `until` (unix seconds) can be recovered.
    """

    chain_id: str
    instance_id: str
    next_segment: int
    partial_bytes: int = 0
    until: float = 0.0


class Copied:
    """In the cell's database. The second store itself is compared with it now and then."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def backups(self, instance_id: str) -> dict[str, float]:
        """By backup, when it was copied."""
        rows = self._database.rows(
            "SELECT backup_id, copied_at FROM backup_copies WHERE instance_id = ?", instance_id
        )
        return dict(rows)

    def count(self, instance_id: str) -> tuple[int, float | None]:
        """How many backups are copied, and when the last one was."""
        row = self._database.row(
            "SELECT count(*), max(copied_at) FROM backup_copies WHERE instance_id = ?", instance_id
        )
        return (0, None) if row is None else (int(row[0]), row[1])

    def add(self, instance_id: str, backup_id: str, at: float) -> None:
        self._database.write(
            "INSERT OR REPLACE INTO backup_copies VALUES (?, ?, ?)", backup_id, instance_id, at
        )

    def forget(self, backup_id: str) -> None:
        self._database.write("DELETE FROM backup_copies WHERE backup_id = ?", backup_id)

    def wal(self, chain_id: str) -> WalCopy | None:
        row = self._database.row(
            "SELECT chain_id, instance_id, next_segment, partial_bytes, until FROM wal_copies"
            " WHERE chain_id = ?",
            chain_id,
        )
        return None if row is None else WalCopy(*row)

    def save(self, copy: WalCopy) -> None:
        """What a power cut takes of that is copied once more."""
        self._database.note(
            "INSERT OR REPLACE INTO wal_copies VALUES (?, ?, ?, ?, ?)",
            *(copy.chain_id, copy.instance_id, copy.next_segment, copy.partial_bytes, copy.until),
        )

    def forget_chains(self, instance_id: str, kept: set[str]) -> None:
        """All but these."""
        rows = self._database.rows(
            "SELECT chain_id FROM wal_copies WHERE instance_id = ?", instance_id
        )
        for (chain_id,) in rows:
            if chain_id not in kept:
                self._database.write("DELETE FROM wal_copies WHERE chain_id = ?", chain_id)

    def erase(self, instance_id: str) -> None:
        for table in ("backup_copies", "wal_copies", "restored_from"):
            self._database.write(f"DELETE FROM {table} WHERE instance_id = ?", instance_id)  # noqa: S608 - our own words

    def restored(self, instance_id: str) -> tuple[str, bool] | None:
        """The backup that the data was last restored from, and whether its copy was read."""
        row = self._database.row(
            "SELECT backup_id, is_copy FROM restored_from WHERE instance_id = ?", instance_id
        )
        return None if row is None else (str(row[0]), bool(row[1]))

    def note_restored(self, instance_id: str, backup_id: str, *, is_copy: bool) -> None:
        self._database.write(
            "INSERT OR REPLACE INTO restored_from VALUES (?, ?, ?)",
            *(instance_id, backup_id, int(is_copy)),
        )
