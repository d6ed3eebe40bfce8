"""Alerts by email: what is new and severe enough, in one letter to each who is to know.

An organization gets letters no more often than every EMAIL_EVERY: what comes meanwhile is in the
next one. What is critical does not wait behind a letter in which nothing was.
"""

from collections.abc import Collection, Sequence
from typing import Final

from sqlalchemy.orm import Session

from control.mail import letters
from control.policy.alert_kinds import EMAIL_EVERY, is_emailed
from control.policy.alert_thresholds import CRITICAL
from control.services import Services
from control.work import Operation, Schedule, workflow
from control.workflows.access import mail
from control.workflows.instances.fault_isolation import isolated
from storage.access import organizations, team_members
from storage.access.organizations import Organization
from storage.access.teams import Team
from storage.database import now
from storage.events import alerts
from storage.events.alerts import Alert
from storage.lookups import by_key
from storage.roles import held_roles

_ORGS_AT_ONCE: Final = 500
_PEOPLE_MAX: Final = 50
"""Who gets letters, of an organization and of a team."""


@workflow("alerts.mail", deadline_s=300)
def send(op: Operation) -> None:
    """Each organization's in a transaction of its own, so that they are sent once."""
    with op.database.read() as db:
        due = alerts.orgs_with_mail_due(db, now(db) - EMAIL_EVERY, _ORGS_AT_ONCE)
    for org_id in due:
        with isolated("", org_id=org_id), op.database.write() as db:
            _send(db, op.services, org_id)


def _send(db: Session, services: Services, org_id: str) -> None:
    organizations.lock(db, org_id)
    org = organizations.fetch(db, org_id)
    wanted = [one for one in alerts.take_mail_due(db, org_id) if _is_wanted(one, org)]
    # A letter names only the first of many.
    wanted.sort(key=lambda one: alerts.SEVERITIES.index(one.severity), reverse=True)
    if not wanted or org.status == "closed":
        return
    org.alerts_mailed_at = now(db)
    if any(one.severity == CRITICAL for one in wanted):
        org.critical_alerts_mailed_at = org.alerts_mailed_at
    for address, told in _by_recipient(db, org, wanted).items():
        listed = [(one.severity, one.title, one.reason) for one in told]
        base_url = services.settings.base_url
        letter = letters.alerts(to=address, org=org.name, alerts=listed, base_url=base_url)
        mail.notify(db, services.sealer, letter, org_id)


def _is_wanted(alert: Alert, org: Organization) -> bool:
    """What is over, or was seen by somebody meanwhile, needs no letter."""
    is_open = alert.resolved_at is None and alert.acknowledged_at is None
    return is_open and is_emailed(alert.kind, alert.severity, org.alert_emails)


def _by_recipient(
    db: Session, org: Organization, wanted: Sequence[Alert]
) -> dict[str, list[Alert]]:
    """All to those who lead the organization, and of a team's to those who lead the team."""
    every = held_roles.addresses(db, org.id, ("owner", "admin"), _PEOPLE_MAX)
    found = {address: list(wanted) for address in every}
    for team_id in sorted({one.team_id for one in wanted if one.team_id is not None}):
        team = by_key(db, Team, team_id)
        theirs = [one for one in wanted if one.team_id == team_id]
        for address in _leads(db, team) if team is not None else ():
            if address not in every:
                found.setdefault(address, []).extend(theirs)
    return found


def _leads(db: Session, team: Team) -> Collection[str]:
    roles: dict[str, tuple[str, ...]] = {"org_roles": (), "team_roles": ("admin",)}
    return [one.email for one in team_members.with_roles(db, team, **roles, limit=_PEOPLE_MAX)]


SCHEDULE: Final = Schedule("alert_mail", send, every_s=60)
