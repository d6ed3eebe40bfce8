"""What the control plane wants of an instance: its engine, size, host, networks and domains."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from typing import Any, Self

from cell.timestamps import unix

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
    source_backup: str | None = None
    """The same of a backup: `<instance_id>/<backup_id>`."""
    source_at: float | None = None
    """With a backup: the moment to recover to from it, in unix seconds."""
    continuous_archiving: bool = False
    """Whether its WAL is archived, where its engine has any."""
    backups_copied: bool = False
    """Whether its backups, and its archived WAL, are copied into the second store."""
    tenant: str = ""
    """Whose it is, in a word that says no more: what all instances share is shared by tenant."""
    person: str = ""
    """Who owns the tenant, and perhaps others."""
    network_version: int = 0
    """Of what is said of clients and domains: what is older than that is not taken any more."""

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
            source_backup=document.get("source_backup"),
            source_at=unix(document.get("source_at")),
            continuous_archiving=document.get("continuous_archiving", False),
            backups_copied=document.get("backups_copied", False),
            tenant=document.get("tenant", ""),
            person=document.get("person", ""),
            network_version=int(document.get("network_version", 0)),
        )

    def archived(self, *, wanted: bool) -> "Spec":
        return replace(self, continuous_archiving=wanted)

    def copied(self, *, wanted: bool) -> "Spec":
        return replace(self, backups_copied=wanted)

    def resized(self, size: Size) -> "Spec":
        return replace(self, size=size)

    def with_access_of(self, other: "Spec") -> "Spec":
        """All that is said of clients; of domains, see `with_domains_of`."""
        return replace(
            self,
            allow_cidrs=other.allow_cidrs,
            client_ca_pem=other.client_ca_pem,
            network_version=other.network_version,
        )

    def with_network(self, told: Mapping[str, Any]) -> "Spec":
        """With what `instances.set_network` says."""
        cidrs = told["allow_cidrs"]
        return replace(
            self,
            allow_cidrs=None if cidrs is None else tuple(cidrs),
            client_ca_pem=told["client_ca_pem"],
            domains=tuple(name.lower() for name in told["domains"]),
            network_version=int(told["network_version"]),
        )

    def with_newest_network(self, other: "Spec") -> "Spec":
        """The other's clients and domains where these are newer."""
        if self.network_version >= other.network_version:
            return self
        return replace(self.with_access_of(other), domains=other.domains)

    def with_domains_of(self, kept: Collection[str]) -> "Spec":
        return replace(self, domains=tuple(each for each in self.domains if each in kept))
