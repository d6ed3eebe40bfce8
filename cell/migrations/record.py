"""What the cell knows of each migration, and keeps through a restart."""

import time
from dataclasses import asdict, dataclass, field
from typing import Any, Literal

import orjson

from cell.database import Database
from cell.migrations.report import bounded, exact
from cell.migrations.source_uri import SourceUri
from cell.sealing import Sealer
from cell.timestamps import moment

Status = Literal[
    "awaiting_source",
    "preflight",
    "copying",
    "syncing",
    "cutting_over",
    "verifying",
    "completed",
    "failed",
    "cancelling",
    "cancelled",
]
ENDED = frozenset({"completed", "failed", "cancelled"})


@dataclass
class MigrationProgress:
    """In bytes, rows and tables of the source; None where it is not known."""

    bytes_done: int | None = None
    bytes_total: int | None = None
    rows_done: int | None = None
    tables_done: int | None = None
    tables_total: int | None = None
    lag_bytes: int | None = None
    lag_s: float | None = None
    estimated_s: float | None = None
    updated_at: float = field(default_factory=time.time)

    def told(self) -> dict[str, Any]:
        return {**asdict(self), "updated_at": moment(self.updated_at)}


@dataclass
class Migration:
    """`made` is what exists because of it, in the instance and at the source, so that it can go.

    `ending` is what it becomes once that has gone. `received_bytes` of `total_bytes` of a file have
    arrived. The source gets the changes of the instance until `way_back_until`; `way_back` is what
    has to be known for that. `table` is what a single file of CSV or Parquet becomes.
    """

    migration_id: str
    instance_id: str
    kind: Literal["upload", "connection"]
    format: str | None
    mode: Literal["copy", "copy_and_sync"]
    dry_run: bool
    status: Status = "awaiting_source"
    reason: str | None = None
    ending: Status | None = None
    received_at: float | None = None
    received_bytes: int = 0
    total_bytes: int | None = None
    preflight: dict[str, Any] | None = None
    progress: MigrationProgress | None = None
    verification: dict[str, Any] | None = None
    made: dict[str, str] = field(default_factory=dict)
    keep_way_back_s: int = 0
    way_back_until: float | None = None
    way_back: dict[str, str] = field(default_factory=dict)
    begun_at: float = field(default_factory=time.time)
    table: str | None = None

    @property
    def has_ended(self) -> bool:
        return self.status in ENDED

    @property
    def is_at_work(self) -> bool:
        """Whether there is something to do: it has not ended, or what it made has not gone."""
        return not self.has_ended or self.way_back_until is not None or "way_back" in self.made

    @property
    def suffix(self) -> str:
        """In names of what is made for it."""
        return self.migration_id.rpartition("_")[2].lower()

    def document(self) -> dict[str, Any]:
        return dict(exact(asdict(self)))

    def observation(self) -> dict[str, Any]:
        document = {
            "migration_id": self.migration_id,
            "status": self.status,
            "reason": self.reason and bounded(self.reason),
            "source_received_at": moment(self.received_at),
            "preflight": self.preflight,
            "progress": self.progress and self.progress.told(),
            "verification": self.verification,
            "way_back_until": moment(self.way_back_until),
        }
        return dict(exact(document))


class MigrationRecords:
    """Rows of cell.db. The URI of a source is sealed, and goes when nothing needs it any more."""

    def __init__(self, database: Database, sealer: Sealer) -> None:
        self._database = database
        self._sealer = sealer

    def every(self) -> list[Migration]:
        rows = self._database.rows("SELECT document FROM migrations ORDER BY migration_id")
        return [_parse(orjson.loads(document)) for (document,) in rows]

    def add(self, migration: Migration) -> None:
        names = (migration.migration_id, migration.instance_id)
        document = _written(migration)
        self._database.write("INSERT INTO migrations VALUES (?, ?, ?, NULL)", *names, document)

    def save(self, migration: Migration) -> None:
        """Of one that was forgotten, nothing: work that ends late must not bring it back."""
        self._database.write(
            "UPDATE migrations SET document = ? WHERE migration_id = ?",
            *(_written(migration), migration.migration_id),
        )
        if migration.has_ended and migration.way_back_until is None:
            self._database.write(
                "UPDATE migrations SET sealed = NULL WHERE migration_id = ?", migration.migration_id
            )

    def keep_source(self, migration: Migration, source: SourceUri) -> None:
        sealed = self._sealer.seal(orjson.dumps(source.document()).decode(), _context(migration))
        self._database.write(
            "UPDATE migrations SET sealed = ? WHERE migration_id = ?",
            *(sealed, migration.migration_id),
        )

    def source(self, migration: Migration) -> SourceUri | None:
        row = self._database.row(
            "SELECT sealed FROM migrations WHERE migration_id = ?", migration.migration_id
        )
        if row is None or row[0] is None:
            return None
        return SourceUri(**orjson.loads(self._sealer.open(row[0], _context(migration))))

    def forget(self, instance_id: str) -> None:
        self._database.write("DELETE FROM migrations WHERE instance_id = ?", instance_id)


def _written(migration: Migration) -> str:
    return orjson.dumps(migration.document()).decode()


def _context(migration: Migration) -> str:
    return f"{migration.instance_id}/{migration.migration_id}"


def _parse(document: dict[str, Any]) -> Migration:
    progress = document.pop("progress")
    return Migration(**document, progress=progress and MigrationProgress(**progress))
