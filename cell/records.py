"""What the cell was told of each instance, and keeps."""

import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any, Literal, Self

import orjson

from cell.database import Database
from cell.uids import Uids

Desired = Literal["running", "paused", "stopped", "erased"]
PausedBy = Literal["idle", "request"]


# Beyond an instance's storage, for what its engine needs besides its data for a while: logs that
# recovery reads, temporary files, and a copy of what is being rewritten.
HEADROOM_SHARE = 0.25
HEADROOM_BYTES = 256 * 2**20


def ceiling_bytes(storage_bytes: int) -> int:
    return int(storage_bytes * (1 + HEADROOM_SHARE)) + HEADROOM_BYTES


@dataclass(frozen=True)
class Size:
    name: str
    vcpu: float
    memory_bytes: int
    storage_bytes: int
    connections_max: int

    @property
    def ceiling_bytes(self) -> int:
        """Where the engine is stopped."""
        return ceiling_bytes(self.storage_bytes)

    @classmethod
    def parse(cls, document: Mapping[str, Any]) -> Self:
        """In JSON 1.0 is an integer, too; in an engine's arguments it is not."""
        return cls(
            name=document["name"],
            vcpu=document["vcpu"],
            memory_bytes=int(document["memory_bytes"]),
            storage_bytes=int(document["storage_bytes"]),
            connections_max=int(document["connections_max"]),
        )


@dataclass(frozen=True)
class Spec:
    """What the control plane wants of an instance."""

    engine: str
    engine_version: str
    size: Size
    host: str
    idle_pause_s: float | None
    allow_cidrs: tuple[str, ...] | None
    rotation_overlap_s: float
    client_ca_pem: str | None = None
    """Where set, only clients with a certificate of these authorities are let in."""
    domains: tuple[str, ...] = ()
    """Further hosts that lead to the instance."""
    source_snapshot: str | None = None
    """What the instance begins with: `<instance_id>/<snapshot_id>` of this cell, once."""
    tenant: str = ""
    """Whose it is, in a word that says no more: what all instances share is shared by tenant."""

    @classmethod
    def parse(cls, document: Mapping[str, Any]) -> Self:
        cidrs = document["allow_cidrs"]
        return cls(
            engine=document["engine"],
            engine_version=document["engine_version"],
            size=Size.parse(document["size"]),
            host=document["host"].lower(),
            idle_pause_s=document["idle_pause_s"],
            allow_cidrs=None if cidrs is None else tuple(cidrs),
            rotation_overlap_s=document["rotation_overlap_s"],
            # Absent from what an earlier version wrote.
            client_ca_pem=document.get("client_ca_pem"),
            domains=tuple(name.lower() for name in document.get("domains", ())),
            source_snapshot=document.get("source_snapshot"),
            tenant=document.get("tenant", ""),
        )

    def resized(self, size: Size) -> "Spec":
        return replace(self, size=size)


@dataclass
class Record:
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

    def every(self) -> list[Record]:
        columns = "instance_id, uid, spec, desired, paused_by, created_at"
        rows = self._database.rows(f"SELECT {columns} FROM instances ORDER BY instance_id")  # noqa: S608 - the columns above
        return [
            Record(name, uid, Spec.parse(orjson.loads(spec)), desired, paused_by, created_at)
            for name, uid, spec, desired, paused_by, created_at in rows
        ]

    def add(self, instance_id: str, spec: Spec) -> Record:
        """Raises NoUidError."""
        with self._database.transaction():
            record = Record(instance_id, self._uids.take(), spec, "running", None, time.time())
            self._database.write(
                "INSERT INTO instances VALUES (?, ?, ?, ?, ?, ?)",
                *(record.instance_id, record.uid, orjson.dumps(asdict(spec)).decode()),
                *(record.desired, record.paused_by, record.created_at),
            )
        return record

    def save(self, record: Record) -> None:
        self._database.write(
            "UPDATE instances SET spec = ?, desired = ?, paused_by = ? WHERE instance_id = ?",
            *(orjson.dumps(asdict(record.spec)).decode(), record.desired, record.paused_by),
            record.instance_id,
        )

    def forget(self, record: Record) -> None:
        """All but that it was erased."""
        with self._database.transaction():
            name = record.instance_id
            self._database.write("INSERT INTO erasures VALUES (?, ?)", name, time.time())
            self._database.write("DELETE FROM instances WHERE instance_id = ?", name)
            self._uids.free(record.uid)

    def was_erased(self, instance_id: str) -> bool:
        return bool(self._database.row("SELECT 1 FROM erasures WHERE instance_id = ?", instance_id))

    def forget_old(self) -> None:
        self._database.write(
            "DELETE FROM erasures WHERE at < ? OR rowid <= (SELECT max(rowid) FROM erasures) - ?",
            *(time.time() - ERASED_KNOWN_S, ERASED_KNOWN_MAX),
        )
