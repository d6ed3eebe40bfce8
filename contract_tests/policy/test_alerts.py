"""Which events raise alerts and which resolve them; a new kind of event fails here first."""

import pytest

from contract_tests.api.rows import DOCUMENT
from control.policy import alerts
from control.policy.alerts import KINDS, RAISING, RESOLVING, Raised

FAILED = "instance.failed.v1"
INTERRUPTED = "backup.archiving_interrupted.v1"
QUIET = {
    *("instance.requested.v1", "instance.credentials.rotated.v1", "restore.completed.v1"),
    *("migration.preflight.v1", "migration.progress.v1", "migration.verified.v1"),
    *("approval.requested.v1", "approval.decided.v1"),
    *("org.member.invited.v1", "org.member.removed.v1"),
    *("org.baa_signed.v1", "api_key.suspended.v1"),
    *("siem_delivery.interrupted.v1", "siem_delivery.resumed.v1", "usage.egress.v1"),
    *("webhook.disabled.v1", "webhook.ping.v1"),
}
"""Those that neither raise nor resolve an alert."""


def test_of_every_kind_of_event_it_is_decided() -> None:
    kinds = set(DOCUMENT.raw["webhooks"])
    assert kinds == {*RAISING, *RESOLVING, *QUIET}, "decide it in control/policy/alerts.py or QUIET"
    assert len(kinds) == len(RAISING) + len(RESOLVING) + len(QUIET)


def test_every_alert_is_resolved_by_something_beside_the_end_of_its_instance() -> None:
    resolved = {kind for event, ended in RESOLVING.items() if ended != KINDS for kind in ended}
    assert resolved == set(KINDS)


@pytest.mark.parametrize(
    ("event", "data", "raised"),
    [
        (FAILED, {"status": "failed"}, ("instance_failed", "critical", "{name} has failed")),
        (
            FAILED,
            {"status": "running", "operation": "resize"},
            ("instance_failed", "warning", "{name}: resize failed"),
        ),
        ("backup.failed.v1", {}, ("backup_failed", "warning", "a backup of {name} failed")),
        (
            INTERRUPTED,
            {"is_lost": True},
            ("backup_archiving_interrupted", "critical", "points in time of {name} are lost"),
        ),
        (
            INTERRUPTED,
            {"is_lost": False},
            (
                "backup_archiving_interrupted",
                "warning",
                "{name} cannot be restored to its last minutes",
            ),
        ),
        (
            "backup.copies_interrupted.v1",
            {},
            (
                "backup_copies_interrupted",
                "warning",
                "backups of {name} are not copied to the second store",
            ),
        ),
        (
            "migration.failed.v1",
            {"status": "failed"},
            ("migration_failed", "warning", "a migration into {name} failed"),
        ),
        *(
            (
                "budget.threshold.v1",
                {"threshold_percent": percent},
                (
                    "budget_threshold",
                    severity,
                    f"the team {{name}} has spent {percent} % of its budget",
                ),
            )
            for percent, severity in ((50, "info"), (80, "warning"), (100, "critical"))
        ),
    ],
)
def test_what_an_event_raises(
    event: str, data: dict[str, object], raised: tuple[str, str, str]
) -> None:
    assert RAISING[event](data) == Raised(*raised)


def test_a_migration_that_was_cancelled_raises_nothing() -> None:
    assert RAISING["migration.failed.v1"]({"status": "cancelled"}) is None


def test_a_rehearsal_that_went_well_resolves_nothing() -> None:
    event = "migration.completed.v1"
    assert alerts.resolved_by(event, {"dry_run": True}) == ()
    assert alerts.resolved_by(event, {"dry_run": False}) == ("migration_failed",)
    assert alerts.resolved_by("instance.requested.v1", {}) == ()
