"""Rules of alerts, evaluated again and again; and alerts that are over because all is quiet."""

from collections.abc import Collection, Iterable
from datetime import datetime
from typing import Final

from sqlalchemy.orm import Session

from control.events import publish, raise_, resolve
from control.policy.alert_kinds import KINDS
from control.policy.alert_thresholds import CLEAR
from control.work import Operation, Schedule, workflow
from control.workflows.events.alert_rules import (
    OFTEN,
    AlertFinding,
    AlertRule,
    key_of,
)
from control.workflows.instances.fault_isolation import isolated
from storage.access import organizations
from storage.access.teams import Team
from storage.database import Database, now
from storage.events import alerts
from storage.events.alerts import SEVERITIES, Alert, AlertSubject, Concerned
from storage.instances.instances import Instance
from storage.lookups import by_key

_AT_ONCE: Final = 500
"""Alerts that end by themselves in one run."""


@workflow("alerts.evaluate", deadline_s=120)
def evaluate(op: Operation) -> None:
    """What people must know within minutes."""
    evaluate_all(op.database, OFTEN)
    _end_quiet(op.database)


def evaluate_all(database: Database, rules: Iterable[AlertRule]) -> None:
    """One that fails leaves its alerts as they are, and keeps no other from being evaluated."""
    for rule in rules:
        with isolated("", alert=rule.kind):
            evaluate_rule(database, rule)


def evaluate_rule(database: Database, rule: AlertRule) -> None:
    """Looks without holding anything, and then again at what each alert is about."""
    with database.read() as db:
        # Before the rule looks: what is raised in between is not found by it, and is not over.
        open_alerts = alerts.open_of(db, [rule.kind])
        found = {one.key: one for one in rule.look(db, now(db))}
    known: dict[tuple[str, str], int] = {}
    for alert in open_alerts:
        key = key_of(alert.subject, alert.cause)
        known[key] = max(SEVERITIES.index(alert.severity), known.get(key, -1))
    for key, finding in found.items():
        if finding.level in SEVERITIES and SEVERITIES.index(finding.level) > known.get(key, -1):
            _apply(database, rule.kind, finding)
    _resolve(database, [one for one in open_alerts if _is_over(one, found, rule)])


def _is_over(alert: Alert, found: dict[tuple[str, str], AlertFinding], rule: AlertRule) -> bool:
    finding = found.get(key_of(alert.subject, alert.cause))
    return rule.ends_unseen if finding is None else finding.level == CLEAR


def _apply(database: Database, kind: str, finding: AlertFinding) -> None:
    with isolated(_named(finding.subject), alert=kind), database.write() as db:
        concerned = _held(db, finding.subject)
        if concerned is None or _is_known(db, finding, kind):
            return
        if finding.event is not None:
            publish(db, finding.subject.org_id, *finding.event, concerned)
        else:
            raise_(
                db,
                concerned,
                *(kind, finding.level or "", finding.title, finding.reason),
                cause=finding.cause,
                counts_if_explained=False,
            )


def _is_known(db: Session, finding: AlertFinding, kind: str) -> bool:
    """Whether somebody else has raised it since; the record that it is about is held."""
    severities = alerts.at_least(finding.level or "")
    return alerts.is_open(db, finding.subject, kind, finding.cause, severities)


def _resolve(database: Database, over: Collection[Alert]) -> None:
    """Those that are still as they were when it was looked; the record is held meanwhile."""
    looked_at = {_state(one) for one in over}
    for alert in over:
        with isolated(_named(alert.subject), alert=alert.kind), database.write() as db:
            concerned = _held(db, alert.subject)
            if concerned is None:
                continue
            current = alerts.open_about(db, alert.subject, alert.kind, alert.cause)
            # Another one, or another occurrence, is of after the look.
            if looked_at.issuperset(map(_state, current)):
                resolve(db, concerned, [alert.kind], cause=alert.cause)


def _state(alert: Alert) -> tuple[str, int]:
    return alert.id, alert.occurrences


def _end_quiet(database: Database) -> None:
    for name, kind in KINDS.items():
        if kind.quiet_for is None:
            continue
        with database.read() as db:
            before: datetime = now(db) - kind.quiet_for
            quiet = alerts.quiet_since(db, name, before, _AT_ONCE)
        _resolve(database, quiet)


def _held(db: Session, subject: AlertSubject) -> Concerned | None:
    """The record, held until the commit; None where it is there no more."""
    if subject.instance_id is not None:
        return by_key(db, Instance, subject.instance_id, lock=True)
    if subject.team_id is not None:
        return by_key(db, Team, subject.team_id, lock=True)
    organizations.lock(db, subject.org_id)
    return organizations.fetch(db, subject.org_id)


def _named(subject: AlertSubject) -> str:
    return subject.instance_id or subject.team_id or subject.org_id


SCHEDULE: Final = Schedule("alerts", evaluate, every_s=60)
