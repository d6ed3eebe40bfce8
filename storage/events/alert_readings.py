"""What rules of alerts look at: one query for each, about all organizations at once."""

from collections import Counter
from collections.abc import Mapping
from datetime import datetime
from typing import Any, NamedTuple

from sqlalchemy import and_, case, exists, func, or_, select
from sqlalchemy.orm import Session

from storage.access import api_keys, invites, memberships
from storage.access.organizations import Organization
from storage.access.projects import Project
from storage.catalogue.cells import Cell
from storage.data import backups
from storage.events.alerts import Alert, AlertSubject
from storage.instances import allocations
from storage.instances.instances import HOSTED, LIVE, Instance
from storage.instances.samples import Sample
from storage.network.domains import Domain

_WHOSE = Instance.org_id, Instance.team_id, Instance.id


class StorageHour(NamedTuple):
    """The most that an instance had stored in an hour, and what it may."""

    subject: AlertSubject
    hour: datetime
    used_bytes: int
    limit_bytes: int


def storage_hours(
    db: Session, kind: str, *, since: datetime, recent: datetime, percent_min: int
) -> list[StorageHour]:
    """Of live instances that lately used so much of their storage, or have an open alert of `kind`.

    Those of an instance follow each other, oldest first.
    """
    last = Sample.__table__.alias()
    mine = last.c.instance_id == Instance.id, last.c.hour >= recent
    is_filled = exists().where(
        *mine, last.c.storage_bytes * 100 >= Instance.storage_bytes * percent_min
    )
    is_alerted = exists().where(
        Alert.instance_id == Instance.id, Alert.kind == kind, Alert.resolved_at.is_(None)
    )
    rows = (
        select(*_WHOSE, Sample.hour, Sample.storage_bytes, Instance.storage_bytes)
        .join(Sample, and_(Sample.instance_id == Instance.id, Sample.hour >= since))
        .where(HOSTED, LIVE, or_(is_filled, is_alerted))
        .order_by(Instance.id, Sample.hour)
    )
    return [StorageHour(AlertSubject(*row[:3]), *row[3:]) for row in db.execute(rows)]


class ConnectionPeaks(NamedTuple):
    """The hourly peaks of an instance in two hours: the lower and the higher one."""

    subject: AlertSubject
    size: str
    least: int
    most: int


def connection_peaks(
    db: Session, *, since: datetime, limits: Mapping[str, int], percent_min: int
) -> list[ConnectionPeaks]:
    """Of live instances whose higher peak is so much of the limit of their size, over two hours."""
    limit = case(dict(limits), value=Instance.size, else_=None)
    rows = (
        select(
            *(*_WHOSE, Instance.size),
            *(func.min(Sample.connections_max), func.max(Sample.connections_max)),
        )
        .join(Sample, and_(Sample.instance_id == Instance.id, Sample.hour >= since))
        .where(HOSTED, LIVE)
        .group_by(*_WHOSE, Instance.size)
        .having(func.count() > 1, func.max(Sample.connections_max) * 100 >= limit * percent_min)
    )
    return [ConnectionPeaks(AlertSubject(*row[:3]), *row[3:]) for row in db.execute(rows)]


class DomainCertificate(NamedTuple):
    """What the cell has told of the certificate of a verified domain."""

    subject: AlertSubject
    hostname: str
    certificate: Mapping[str, Any]

    @property
    def is_by_acme(self) -> bool:
        return bool(self.certificate["issued_by"] == "acme")

    @property
    def has_failed(self) -> bool:
        """Whether the last attempt to have it issued or renewed did."""
        return bool(self.certificate["status"] == "failed")


def certificates(db: Session) -> list[DomainCertificate]:
    """Of live instances; those of one follow each other."""
    rows = select(*_WHOSE, Domain.hostname, Domain.certificate).join(
        Domain, Domain.instance_id == Instance.id
    )
    rows = rows.where(HOSTED, LIVE, Domain.status == "verified", Domain.certificate.is_not(None))
    found = db.execute(rows.order_by(Instance.id, Domain.hostname))
    return [
        DomainCertificate(AlertSubject(*row[:3]), *row[3:]) for row in found if row[4] is not None
    ]


def unverified_domains(db: Session) -> list[tuple[AlertSubject, str]]:
    """The ids of those of live instances."""
    rows = select(*_WHOSE, Domain.id).join(Domain, Domain.instance_id == Instance.id)
    found = db.execute(rows.where(HOSTED, LIVE, Domain.status != "verified"))
    return [(AlertSubject(*row[:3]), row[3]) for row in found]


class Unreachable(NamedTuple):
    """How many live instances of a team are on a cell, and when it responded for the last time."""

    subject: AlertSubject
    cell_id: str
    since: datetime
    instances: int


def unreachable(db: Session, before: datetime) -> list[Unreachable]:
    """On cells that have not responded since that moment, or not at all since they were to start.

    What is to be said of those is since when they are waited for.
    """
    since = func.coalesce(Cell.last_seen_at, Cell.expected_at)
    is_silent = or_(since < before, Cell.last_seen_at.is_(None) & Cell.expected_at.is_not(None))
    rows = (
        select(Instance.org_id, Instance.team_id, Cell.id, since, func.count())
        .join(Cell, Cell.id == Instance.cell_id)
        .where(HOSTED, LIVE, Instance.team_id.is_not(None), is_silent)
        .group_by(Instance.org_id, Instance.team_id, Cell.id, since)
    )
    return [Unreachable(AlertSubject(*row[:2]), *row[2:]) for row in db.execute(rows)]


def plans(db: Session) -> dict[str, str]:
    """Of each organization that is open."""
    rows = select(Organization.id, Organization.plan).where(Organization.status == "open")
    return dict(db.execute(rows).tuples().all())


def used_by_org(db: Session, now: datetime) -> dict[str, dict[str, int]]:
    """By resource, how much of it each organization uses; whoever is not there uses none."""
    wanted = allocations.wanted_by_org(db)
    members = Counter(memberships.count_by_org(db))
    pending = Counter(invites.count_pending_by_org(db, now))
    projects = select(Project.org_id, func.count()).group_by(Project.org_id)
    return {
        "instances": {org_id: count for org_id, count, _ in wanted},
        "storage_bytes": {org_id: held for org_id, _, held in wanted},
        "seats": dict(members + pending),
        "projects": dict(db.execute(projects).tuples().all()),
        "api_keys": api_keys.count_by_org(db, now),
        "backup_bytes": {org_id: taken for org_id, _, taken in backups.stored_by_org(db)},
    }
