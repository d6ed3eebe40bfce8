"""Which events raise alerts, how severe these are, and which events say that one is over."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from control.policy.alert_kinds import (
    BUDGET,
    FAILED,
    KINDS,
    OF_INSTANCES,
    QUOTA,
    SIEM,
    SPENDING,
    SUSPENDED_KEY,
    WEBHOOK,
)

Data = Mapping[str, Any]
_OF_BUDGETS: Final = {50: "info", 80: "warning", 100: "critical"}
"""By the threshold."""
RAISED: Final = "alert.raised.v1"
RESOLVED: Final = "alert.resolved.v1"
"""What tells of alerts themselves; they raise none."""


@dataclass(frozen=True)
class Raised:
    """`title` is a sentence in which the name of what it is about replaces `{name}`.

    Without a `reason` it is that of the event's data.
    """

    kind: str
    severity: str
    title: str
    reason: str | None = None


def _always(kind: str, severity: str, title: str) -> Callable[[Data], Raised]:
    """Of an event that always raises the same."""
    return lambda _data: Raised(kind, severity, title)


def _instance_failed(data: Data) -> Raised:
    if data["status"] == "failed":
        return Raised(FAILED, "critical", "{name} has failed")
    return Raised(FAILED, "warning", f"{{name}}: {data['operation']} failed")


def _archiving_interrupted(data: Data) -> Raised:
    kind = "backup_archiving_interrupted"
    if data["is_lost"]:
        return Raised(kind, "critical", "points in time of {name} are lost")
    return Raised(kind, "warning", "{name} cannot be restored to its last minutes")


def _migration_failed(data: Data) -> Raised | None:
    if data["status"] == "cancelled":
        return None
    return Raised("migration_failed", "warning", "a migration into {name} failed")


def _budget_threshold(data: Data) -> Raised:
    percent = data["threshold_percent"]
    title = f"the team {{name}} has spent {percent} % of its budget"
    return Raised(BUDGET, _OF_BUDGETS[percent], title)


def _spending_threshold(data: Data) -> Raised:
    percent = data["threshold_percent"]
    title = f"{{name}} has spent {percent} % of its spending cap"
    return Raised(SPENDING, _OF_BUDGETS[percent], title)


def _key_suspended(data: Data) -> Raised:
    reason = _SUSPENDED_FOR[data["reason"]]
    return Raised(SUSPENDED_KEY, "critical", "an API key of {name} is suspended", reason)


_SUSPENDED_FOR: Final = {
    "leaked": "a secret scanner found it in public",
    "probing": "it was tried at many operations that it has no permission for",
}


def _webhook_disabled(data: Data) -> Raised:
    reason = _DISABLED_FOR[data["reason"]]
    return Raised(WEBHOOK, "warning", "a webhook endpoint of {name} is disabled", reason)


_DISABLED_FOR: Final = {
    "gone": "it answered 410, which says that it is gone for good",
    "failing": "every attempt to send to it failed, for days",
}


def _quota(severity: str) -> Callable[[Data], Raised]:
    def raised(data: Data) -> Raised:
        title = f"{{name}} uses {data['used_percent']} % of its quota of {data['resource']}"
        return Raised(QUOTA, severity, title.replace("_", " "))

    return raised


RAISING: Final[Mapping[str, Callable[[Data], Raised | None]]] = {
    "instance.failed.v1": _instance_failed,
    "backup.failed.v1": _always("backup_failed", "warning", "a backup of {name} failed"),
    "backup.archiving_interrupted.v1": _archiving_interrupted,
    "backup.copies_interrupted.v1": _always(
        *("backup_copies_interrupted", "warning"),
        "backups of {name} are not copied to the second store",
    ),
    "migration.failed.v1": _migration_failed,
    "budget.threshold.v1": _budget_threshold,
    "spending_cap.threshold.v1": _spending_threshold,
    "quota.warning.v1": _quota("info"),
    "quota.exceeded.v1": _quota("warning"),
    "api_key.suspended.v1": _key_suspended,
    "webhook.disabled.v1": _webhook_disabled,
    "siem_delivery.interrupted.v1": _always(
        *(SIEM, "warning"), "a SIEM delivery of {name} is interrupted"
    ),
}
RESOLVING: Final[Mapping[str, tuple[str, ...]]] = {
    "instance.ready.v1": (FAILED,),
    "instance.paused.v1": (FAILED,),
    "instance.resumed.v1": (FAILED,),
    "instance.resized.v1": (FAILED,),
    "instance.deleted.v1": OF_INSTANCES,
    "backup.completed.v1": ("backup_failed",),
    "backup.archiving_resumed.v1": ("backup_archiving_interrupted",),
    "backup.copies_resumed.v1": ("backup_copies_interrupted",),
    "migration.completed.v1": ("migration_failed",),
    "siem_delivery.resumed.v1": (SIEM,),
}


def resolved_by(event: str, data: Data) -> tuple[str, ...]:
    """The kinds of alerts that are over with it; a rehearsal that went well changes nothing."""
    return () if data.get("dry_run") else RESOLVING.get(event, ())


def cause_of(kind: str, data: Data) -> str:
    """What tells alerts of this kind about one subject apart; empty where nothing does."""
    member = KINDS[kind].cause_member
    return "" if member is None else str(data[member])


def severity_of(kind: str, severity: str, times: int) -> str:
    """How severe it is that it happens for so many times in a row."""
    limit = KINDS[kind].critical_from
    return "critical" if limit is not None and times >= limit else severity
