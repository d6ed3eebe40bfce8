"""The kinds of events the service publishes, one name for each thing that can happen."""

from typing import Final

EVENT_KINDS: Final = frozenset(
    {
        "instance.requested.v1",
        "instance.ready.v1",
        "instance.failed.v1",
        "instance.paused.v1",
        "instance.resumed.v1",
        "instance.resized.v1",
        "instance.deleted.v1",
        "instance.credentials.rotated.v1",
        "backup.completed.v1",
        "backup.failed.v1",
        "restore.completed.v1",
        "migration.preflight.v1",
        "migration.progress.v1",
        "migration.verified.v1",
        "migration.completed.v1",
        "migration.failed.v1",
        "quota.warning.v1",
        "quota.exceeded.v1",
        "budget.threshold.v1",
        "org.member.invited.v1",
        "org.member.removed.v1",
        "org.baa_signed.v1",
        "approval.requested.v1",
        "approval.decided.v1",
        "usage.egress.v1",
    }
)
