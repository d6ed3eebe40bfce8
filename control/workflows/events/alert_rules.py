"""What rules of alerts find: one query each, and the thresholds of control/policy applied to it."""

import math
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta
from itertools import groupby
from typing import Any, Final

from sqlalchemy.orm import Session

from control.events import cause_of_cell
from control.policy import quotas, storage_forecast
from control.policy.alert_kinds import (
    CERTIFICATE,
    CONNECTIONS,
    DOMAIN,
    QUOTA,
    STORAGE,
    SUSPENDED_KEY,
    UNREACHABLE,
)
from control.policy.alert_thresholds import (
    CLEAR,
    DAYS_LEFT,
    INFO,
    PEAK,
    QUOTA_USED,
    SILENCE,
    USED,
    VALID,
    WARNING,
    level,
    worst_of,
)
from control.policy.plans import PLANS
from control.policy.sizes import SIZES
from control.policy.storage_forecast import UsedStorage
from control.policy.violations import gigabytes
from storage.access import api_keys
from storage.events import alert_readings
from storage.events.alert_readings import DomainCertificate, StorageHour
from storage.events.alerts import AlertSubject

_HOUR: Final = timedelta(hours=1)
_DAY_S: Final = 86_400
_WATCHED_PERCENT: Final = 10
"""With less, growth of a day or more cannot fill the rest within the days of DAYS_LEFT."""
_TOLD_BYTES: Final = 10**7
"""Growth of less a day is nothing, as gigabytes are written."""
_NAMED_MAX: Final = 5
"""Host names in one reason."""


@dataclass(frozen=True)
class AlertFinding:
    """`level` is a severity, CLEAR, or None for what is to stay as it is.

    With an `event`, that raises the alert; else it has the title and the reason.
    """

    subject: AlertSubject
    level: str | None
    title: str = ""
    reason: str = ""
    cause: str = ""
    event: tuple[str, dict[str, Any]] | None = None

    @property
    def key(self) -> tuple[str, str]:
        return key_of(self.subject, self.cause)


def key_of(subject: AlertSubject, cause: str) -> tuple[str, str]:
    """The same also after an instance has moved to another team."""
    return subject.instance_id or subject.team_id or subject.org_id, cause


@dataclass(frozen=True)
class AlertRule:
    """Where `ends_unseen`, an alert about what is no longer found is over."""

    kind: str
    look: Callable[[Session, datetime], Iterable[AlertFinding]]
    ends_unseen: bool = True


def _storage(db: Session, now: datetime) -> Iterator[AlertFinding]:
    recent = now - 2 * _HOUR
    hours = alert_readings.storage_hours(
        db,
        STORAGE,
        since=now - storage_forecast.WINDOW - _HOUR,
        recent=recent,
        percent_min=_WATCHED_PERCENT,
    )
    for subject, of_one in groupby(hours, lambda each: each.subject):
        yield _filling(subject, list(of_one), now, recent)


def _filling(
    subject: AlertSubject, hours: list[StorageHour], now: datetime, recent: datetime
) -> AlertFinding:
    last = hours[-1]
    if last.hour < recent:
        # Its cell has said nothing since.
        return AlertFinding(subject, None)
    a_day = storage_forecast.bytes_a_day(
        [UsedStorage(one.hour, one.used_bytes) for one in hours], now
    )
    used = last.used_bytes * 100 / last.limit_bytes
    amount = f"{gigabytes(last.used_bytes)} of {gigabytes(last.limit_bytes)} are used"
    what_helps = "order more storage, or delete data"
    if a_day is None:
        found = level(USED, used)
        return AlertFinding(subject, found, _full_title(used), f"{amount}; {what_helps}")
    days = storage_forecast.days_until_full(last.used_bytes, last.limit_bytes, a_day)
    by_days = level(DAYS_LEFT, days)
    title = _full_title(used) if by_days in (CLEAR, None) else _forecast_title(days)
    growth = f", and {gigabytes(int(a_day))} are added a day" if a_day >= _TOLD_BYTES else ""
    reason = f"{amount}{growth}; {what_helps}"
    return AlertFinding(subject, worst_of((by_days, level(USED, used))), title, reason)


def _full_title(used: float) -> str:
    return f"the storage of {{name}} is {math.floor(used)} % full"


def _forecast_title(days: float) -> str:
    return f"the storage of {{name}} will be full {_in_days(days)}"


def _in_days(days: float) -> str:
    whole = math.floor(days)
    return "within a day" if whole < 1 else f"in {whole} day{'s' * (whole > 1)}"


def _connections(db: Session, now: datetime) -> Iterator[AlertFinding]:
    since = now.replace(minute=0, second=0, microsecond=0) - _HOUR
    limits = {size.name: size.connections_max for size in SIZES.values()}
    for found in alert_readings.connection_peaks(
        db, since=since, limits=limits, percent_min=int(PEAK.clear)
    ):
        limit = limits[found.size]
        reason = (
            f"in each of the last two hours {found.least} or more of {limit} connections were open"
            " at once; close idle ones, use a connection pool, or choose a larger size"
        )
        severity = level(PEAK, found.least * 100 / limit, found.most * 100 / limit)
        yield AlertFinding(
            found.subject, severity, "{name} is close to its limit of connections", reason
        )


def _certificates(db: Session, now: datetime) -> Iterator[AlertFinding]:
    found = alert_readings.certificates(db)
    for subject, of_one in groupby(found, lambda each: each.subject):
        left = sorted(((_days_valid(one, now), one) for one in of_one), key=lambda each: each[0])
        due = [one for days, one in left if level(VALID, days) not in (CLEAR, None)]
        days = left[0][0]
        if not due and (failing := [one for _, one in left if one.has_failed]):
            yield _failing(subject, failing)
            continue
        title = f"a certificate of {{name}} expires {_in_days(days)}"
        yield AlertFinding(
            subject, level(VALID, days), title if days > 0 else _EXPIRED, _not_renewed(due)
        )


_EXPIRED: Final = "a certificate of {name} has expired"


def _failing(subject: AlertSubject, failing: list[DomainCertificate]) -> AlertFinding:
    """Long before any of them expires; without the first one clients cannot verify the domain."""
    missing = [one for one in failing if not one.is_by_acme]
    if missing:
        title = "a certificate of {name} cannot be issued"
        return AlertFinding(subject, WARNING, title, _not_renewed(missing))
    title = "a certificate of {name} cannot be renewed yet"
    return AlertFinding(subject, INFO, title, _not_renewed(failing))


def _lost_domains(db: Session, _now: datetime) -> Iterator[AlertFinding]:
    """Who loses a domain raises the alert; here it is seen that one is over, however it ended."""
    for subject, domain_id in alert_readings.unverified_domains(db):
        yield AlertFinding(subject, None, cause=domain_id)


def _days_valid(of: DomainCertificate, now: datetime) -> float:
    """Infinite where it is being taken care of: some are valid for less than a week altogether."""
    told = of.certificate
    if told["not_after"] is None:
        return math.inf
    days = (datetime.fromisoformat(told["not_after"]) - now).total_seconds() / _DAY_S
    is_renewing = of.is_by_acme and not of.has_failed
    return math.inf if is_renewing and days >= 1 else days


def _not_renewed(due: list[DomainCertificate]) -> str:
    if not due:
        return ""
    first = due[0]
    why = first.certificate["status_reason"] or "it was not renewed"
    others = [one.hostname for one in due[1:_NAMED_MAX]]
    also = f"; also {', '.join(others)}" if others else ""
    more = len(due) - _NAMED_MAX
    return f"{first.hostname}: {why}{also}{f' and {more} more' if more > 0 else ''}"


def _unreachable(db: Session, now: datetime) -> Iterator[AlertFinding]:
    before = now - timedelta(seconds=SILENCE.clear)
    for found in alert_readings.unreachable(db, before):
        silent_s = (now - found.since).total_seconds()
        severity = level(SILENCE, silent_s)
        count = "1 instance" if found.instances == 1 else f"{found.instances} instances"
        yield AlertFinding(
            found.subject,
            # One that is to start, and has not been heard of, does not respond again yet.
            None if severity == CLEAR else severity,
            f"the cell of {count} of the team {{name}} does not respond",
            f"it has not responded since {found.since:%Y-%m-%d %H:%M} UTC; until it does, changes"
            " and backups wait, and connections may fail",
            cause=cause_of_cell(found.cell_id),
        )


def _quotas(db: Session, now: datetime) -> Iterator[AlertFinding]:
    used = alert_readings.used_by_org(db, now)
    for org_id, plan_id in alert_readings.plans(db).items():
        plan = PLANS[plan_id]
        for resource in quotas.WATCHED:
            limit, amount = quotas.limit_of(plan, resource), used[resource].get(org_id, 0)
            percent = amount * 100 // limit if limit else 0
            severity = level(QUOTA_USED, percent)
            if severity == CLEAR:
                continue
            kind = "quota.warning.v1" if severity in (INFO, None) else "quota.exceeded.v1"
            data = {
                "resource": resource,
                "used": amount,
                "limit": limit,
                "used_percent": percent,
                "plan": plan.id,
                "reason": _of_plan(resource, amount, limit or 0, plan.name),
            }
            yield AlertFinding(AlertSubject(org_id), severity, cause=resource, event=(kind, data))


def _of_plan(resource: str, amount: int, limit: int, plan: str) -> str:
    told = (
        f"{gigabytes(amount)} of {gigabytes(limit)}"
        if resource.endswith("_bytes")
        else f"{amount} of {limit}"
    )
    return f"{told} that the {plan} plan allows; beyond that, requests for more are refused"


def _suspended_keys(db: Session, _now: datetime) -> Iterator[AlertFinding]:
    """An event raises the alert; here it is seen that one is over, however that ended."""
    for org_id, key_id in api_keys.suspended(db):
        yield AlertFinding(AlertSubject(org_id), None, cause=key_id)


OFTEN: Final = (
    AlertRule(UNREACHABLE, _unreachable),
    AlertRule(CONNECTIONS, _connections),
    AlertRule(QUOTA, _quotas),
    AlertRule(SUSPENDED_KEY, _suspended_keys),
    AlertRule(DOMAIN, _lost_domains),
)
SELDOM: Final = (
    AlertRule(STORAGE, _storage, ends_unseen=False),
    AlertRule(CERTIFICATE, _certificates),
)
