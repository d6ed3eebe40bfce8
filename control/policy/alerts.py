"""Which events alert the people of an instance, how severely, and which say that it is over."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

KINDS: Final = (
    *("instance_failed", "backup_failed", "backup_archiving_interrupted"),
    *("backup_copies_interrupted", "migration_failed"),
)
Data = Mapping[str, Any]


@dataclass(frozen=True)
class Raised:
    """`title` is a sentence about the instance, whose name goes in the place of `{name}`."""

    kind: str
    severity: str
    title: str


def _instance_failed(data: Data) -> Raised:
    if data["status"] == "failed":
        return Raised("instance_failed", "critical", "{name} has failed")
    return Raised("instance_failed", "warning", f"{{name}}: {data['operation']} failed")


def _backup_failed(_data: Data) -> Raised:
    return Raised("backup_failed", "warning", "a backup of {name} failed")


def _archiving_interrupted(data: Data) -> Raised:
    kind = "backup_archiving_interrupted"
    if data["is_lost"]:
        return Raised(kind, "critical", "points in time of {name} are lost")
    return Raised(kind, "warning", "{name} cannot be restored to its last minutes")


def _copies_interrupted(_data: Data) -> Raised:
    kind = "backup_copies_interrupted"
    return Raised(kind, "warning", "backups of {name} are not copied to the second store")


def _migration_failed(data: Data) -> Raised | None:
    if data["status"] == "cancelled":
        return None
    return Raised("migration_failed", "warning", "a migration into {name} failed")


RAISING: Final[Mapping[str, Callable[[Data], Raised | None]]] = {
    "instance.failed.v1": _instance_failed,
    "backup.failed.v1": _backup_failed,
    "backup.archiving_interrupted.v1": _archiving_interrupted,
    "backup.copies_interrupted.v1": _copies_interrupted,
    "migration.failed.v1": _migration_failed,
}
RESOLVING: Final[Mapping[str, tuple[str, ...]]] = {
    "instance.ready.v1": ("instance_failed",),
    "instance.paused.v1": ("instance_failed",),
    "instance.resumed.v1": ("instance_failed",),
    "instance.resized.v1": ("instance_failed",),
    "instance.deleted.v1": KINDS,
    "backup.completed.v1": ("backup_failed",),
    "backup.archiving_resumed.v1": ("backup_archiving_interrupted",),
    "backup.copies_resumed.v1": ("backup_copies_interrupted",),
    "migration.completed.v1": ("migration_failed",),
}


def resolved_by(event: str, data: Data) -> tuple[str, ...]:
    """The kinds of alerts that are over with it; a rehearsal that went well changes nothing."""
    return () if data.get("dry_run") else RESOLVING.get(event, ())
