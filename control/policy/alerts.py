"""Which events alert people to an instance or a team, how severely, and which say it is over."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

KINDS: Final = (
    *("instance_failed", "backup_failed", "backup_archiving_interrupted"),
    *("backup_copies_interrupted", "migration_failed"),
)
"""Of instances."""
OF_TEAMS: Final = ("budget_threshold",)
"""They are over when what is spent is below every threshold again, which no event tells."""
Data = Mapping[str, Any]
_OF_BUDGETS: Final = {50: "info", 80: "warning", 100: "critical"}
"""By the threshold."""


@dataclass(frozen=True)
class Raised:
    """`title` is a sentence about an instance or a team, whose name replaces `{name}`."""

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


def _budget_threshold(data: Data) -> Raised:
    percent = data["threshold_percent"]
    title = f"the team {{name}} has spent {percent} % of its budget"
    return Raised("budget_threshold", _OF_BUDGETS[percent], title)


RAISING: Final[Mapping[str, Callable[[Data], Raised | None]]] = {
    "instance.failed.v1": _instance_failed,
    "backup.failed.v1": _backup_failed,
    "backup.archiving_interrupted.v1": _archiving_interrupted,
    "backup.copies_interrupted.v1": _copies_interrupted,
    "migration.failed.v1": _migration_failed,
    "budget.threshold.v1": _budget_threshold,
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
