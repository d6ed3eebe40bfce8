"""What the cell was told of each instance, and keeps."""

import time
from dataclasses import asdict, dataclass, replace
from typing import Literal

import orjson

from cell.database import Database
from cell.instances.uids import Uids
from cell.specification import Spec

Desired = Literal["running", "paused", "stopped", "erased"]
PausedBy = Literal["idle", "request"]


@dataclass(frozen=True)
class InstanceRecord:
    """One row. `desired` is what holds now, whoever decided it; `paused_by` says who did."""

    instance_id: str
    uid: int
    spec: Spec
    desired: Desired
    paused_by: PausedBy | None
    created_at: float

    @property
    def tenant(self) -> str:
        return self.spec.tenant or self.instance_id


# A control plane that was restored from a backup may ask for what was erased since.
ERASED_KNOWN_S = 30 * 86_400.0
ERASED_KNOWN_MAX = 1_000_000


class Records:
    """The rows of every instance; of one that was erased and told, its id, so that it stays so."""

    def __init__(self, database: Database, uids: Uids) -> None:
        self._database = database
        self._uids = uids

    def every(self) -> list[InstanceRecord]:
        columns = "instance_id, uid, spec, desired, paused_by, created_at"
        rows = self._database.rows(f"SELECT {columns} FROM instances ORDER BY instance_id")  # noqa: S608 - the columns above
        return [
            InstanceRecord(
                name, uid, Spec.parse(orjson.loads(spec)), desired, paused_by, created_at
            )
            for name, uid, spec, desired, paused_by, created_at in rows
        ]

    def add(self, instance_id: str, spec: Spec) -> InstanceRecord:
        """Raises NoUidError."""
        with self._database.transaction():
            record = InstanceRecord(
                instance_id, self._uids.take(), spec, "running", None, time.time()
            )
            self._database.write(
                "INSERT INTO instances VALUES (?, ?, ?, ?, ?, ?)",
                *(record.instance_id, record.uid, orjson.dumps(asdict(spec)).decode()),
                *(record.desired, record.paused_by, record.created_at),
            )
        return record

    def save(self, record: InstanceRecord) -> None:
        self._database.write(
            "UPDATE instances SET spec = ?, desired = ?, paused_by = ? WHERE instance_id = ?",
            *(orjson.dumps(asdict(record.spec)).decode(), record.desired, record.paused_by),
            record.instance_id,
        )

    def moved(self, record: InstanceRecord) -> InstanceRecord:
        """The same, saved with a user of this cell's; it may have been another home's before."""
        if not self._uids.is_mine(record.uid):
            with self._database.transaction():
                record = replace(record, uid=self._uids.take())
                self._database.write(
                    "UPDATE instances SET uid = ? WHERE instance_id = ?",
                    *(record.uid, record.instance_id),
                )
        self.save(record)
        return record

    def forget(self, record: InstanceRecord) -> None:
        """All but that it was erased."""
        with self._database.transaction():
            name = record.instance_id
            self._database.write("INSERT INTO erasures VALUES (?, ?)", name, time.time())
            for table in ("instances", "lost_data"):
                self._database.write(f"DELETE FROM {table} WHERE instance_id = ?", name)  # noqa: S608 - the tables above
            self._uids.free(record.uid)

    def was_erased(self, instance_id: str) -> bool:
        return bool(self._database.row("SELECT 1 FROM erasures WHERE instance_id = ?", instance_id))

    def forget_old(self) -> None:
        self._database.write(
            "DELETE FROM erasures WHERE at < ? OR rowid <= (SELECT max(rowid) FROM erasures) - ?",
            *(time.time() - ERASED_KNOWN_S, ERASED_KNOWN_MAX),
        )
