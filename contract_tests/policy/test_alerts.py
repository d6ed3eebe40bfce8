"""Which events raise alerts and which resolve them; a new kind of event fails here first."""

import pytest

from contract_tests.api.rows import DOCUMENT
from control.policy import alerts
from control.policy.alert_kinds import (
    BUDGET,
    EMAILS,
    KINDS,
    OF_INSTANCES,
    OWNER_ADDED,
    SIGN_INS,
    SPENDING,
    SSO_CERTIFICATE,
    SSO_DOMAIN,
    SSO_PROVIDER,
    WEBHOOK,
    is_emailed,
)
from control.policy.alerts import RAISED, RAISING, RESOLVED, RESOLVING, Raised
from control.workflows.events.alert_rules import OFTEN, SELDOM

FAILED = "instance.failed.v1"
INTERRUPTED = "backup.archiving_interrupted.v1"
QUIET = {
    *("instance.requested.v1", "instance.credentials.rotated.v1", "restore.completed.v1"),
    *("migration.preflight.v1", "migration.progress.v1", "migration.verified.v1"),
    *("approval.requested.v1", "approval.decided.v1"),
    *("org.member.added.v1", "org.member.invited.v1", "org.member.removed.v1"),
    *("org.baa_signed.v1", RAISED, RESOLVED),
    *("usage.egress.v1", "webhook.ping.v1"),
    *("credit.granted.v1", "programme.decided.v1"),
    *("invoice.finalized.v1", "invoice.paid.v1", "invoice.voided.v1"),
    *("credit_note.finalized.v1", "credit_note.refunded.v1", "invoice.payment_failed.v1"),
}
"""Those that neither raise nor resolve an alert."""
ELSEWHERE = {
    BUDGET: "control/workflows/access/budgets.py looks at what was spent",
    SPENDING: "control/workflows/billing/spending_caps.py does so of organizations",
    WEBHOOK: "handlers/events/webhooks.py enables and deletes endpoints",
    SSO_DOMAIN: "control/workflows/sso/domains.py finds the record again, or gives the domain up",
    SSO_PROVIDER: "control/sso/provider_alerts.py looks when the provider is read again",
    SSO_CERTIFICATE: "control/sso/provider_alerts.py looks at the certificates every day",
}
"""Alerts that are resolved in code, and where."""
OF_SSO = (SSO_DOMAIN, SSO_PROVIDER, SSO_CERTIFICATE)
EVERYTHING = {
    "operation": "run",
    "reason": "leaked",
    "resource": "seats",
    "used_percent": 80,
}
"""What some event has in its data."""


def test_of_every_kind_of_event_it_is_decided() -> None:
    kinds = set(DOCUMENT.raw["webhooks"])
    assert kinds == {*RAISING, *RESOLVING, *QUIET}, "decide it in control/policy/alerts.py or QUIET"
    assert len(kinds) == len(RAISING) + len(RESOLVING) + len(QUIET)


def test_every_alert_is_resolved_by_something_beside_the_end_of_its_instance() -> None:
    by_events = {kind for ended in RESOLVING.values() if ended != OF_INSTANCES for kind in ended}
    by_rules = {rule.kind for rule in (*OFTEN, *SELDOM)}
    by_time = {name for name, kind in KINDS.items() if kind.quiet_for is not None}
    ended = (by_events, by_rules, by_time, set(ELSEWHERE))
    assert set().union(*ended) == set(KINDS), "an alert that nothing ends is open for ever"
    assert sum(map(len, ended)) == len(KINDS)


def test_every_kind_is_raised_by_something() -> None:
    every = {**EVERYTHING, "status": "failed", "threshold_percent": 50, "is_lost": True}
    reasons = {"webhook.disabled.v1": "gone"}
    by_events = {
        found.kind
        for kind, raise_ in RAISING.items()
        if (found := raise_({**every, "reason": reasons.get(kind, every["reason"])}))
    }
    by_rules = {rule.kind for rule in (*OFTEN, *SELDOM)}
    assert by_events | by_rules | {SIGN_INS, OWNER_ADDED, *OF_SSO} == set(KINDS)


def test_what_explains_another_is_known_and_explained_by_none_that_it_explains() -> None:
    for name, kind in KINDS.items():
        for other in kind.hidden_by:
            assert name not in KINDS[other].hidden_by
            assert name != other
    hidden = {name for name, kind in KINDS.items() if kind.hidden_by}
    assert hidden <= set(OF_INSTANCES)


def test_every_critical_alert_is_emailed_unless_it_has_a_letter_or_nobody_wants_any() -> None:
    for name, kind in KINDS.items():
        chosen = {choice: is_emailed(name, "critical", choice) for choice in EMAILS}
        sent = not kind.has_letter
        assert chosen == {"critical": sent, "warning": sent, "none": False}
        assert is_emailed(name, "warning", "warning") is sent
        assert not is_emailed(name, "warning", "critical")
        assert not any(is_emailed(name, "info", choice) for choice in EMAILS)


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
        (
            "api_key.suspended.v1",
            {"reason": "probing"},
            (
                *("api_key_suspended", "critical", "an API key of {name} is suspended"),
                "it was tried at many operations that it has no permission for",
            ),
        ),
        *(
            (
                event,
                {"used_percent": percent, "resource": "storage_bytes"},
                (
                    *("quota_threshold", severity),
                    f"{{name}} uses {percent} % of its quota of storage bytes",
                ),
            )
            for event, percent, severity in (
                ("quota.warning.v1", 80, "info"),
                ("quota.exceeded.v1", 100, "warning"),
            )
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
        (
            "spending_cap.threshold.v1",
            {"threshold_percent": 100},
            (
                "spending_cap_threshold",
                "critical",
                "{name} has spent 100 % of its spending cap",
            ),
        ),
    ],
)
def test_what_an_event_raises(event: str, data: dict[str, object], raised: tuple[str, ...]) -> None:
    assert RAISING[event](data) == Raised(*raised)


def test_a_migration_that_was_cancelled_raises_nothing() -> None:
    assert RAISING["migration.failed.v1"]({"status": "cancelled"}) is None


def test_a_rehearsal_that_went_well_resolves_nothing() -> None:
    event = "migration.completed.v1"
    assert alerts.resolved_by(event, {"dry_run": True}) == ()
    assert alerts.resolved_by(event, {"dry_run": False}) == ("migration_failed",)
    assert alerts.resolved_by("instance.requested.v1", {}) == ()
