"""What is there in an hour, of everybody: read once the hour is over, and written as readings."""

from collections.abc import Collection, Iterator
from datetime import datetime
from typing import Any, NamedTuple

from sqlalchemy import Select, func, or_, select
from sqlalchemy.orm import Session

from storage.access import memberships
from storage.access.organizations import Organization
from storage.billing.meters import SEATS, MeterReading
from storage.data.backups import Backup
from storage.errors import RecordNotFound
from storage.instances.instances import HOSTED, LIVE, Instance
from storage.network.domains import Domain

_WHOSE = Instance.id, Instance.org_id, Instance.team_id, Instance.region, Organization.plan


def backups(db: Session, meter: str, hour: datetime) -> Iterator[MeterReading]:
    """The bytes that backups of live instances took in the store when the hour began.

    However late it is asked: what was dropped since is still known.
    """
    rows: Any = select(*_WHOSE, func.sum(Backup.stored_bytes)).join(
        Backup, Backup.instance_id == Instance.id
    )
    rows = rows.where(
        Backup.stored_bytes.is_not(None),
        Backup.completed_at <= hour,
        or_(Backup.dropped_at.is_(None), Backup.dropped_at > hour),
    )
    return _read(db, rows, meter, hour)


def domains(db: Session, meter: str, hour: datetime) -> Iterator[MeterReading]:
    """How many domains of live instances have a certificate that was issued for them."""
    rows: Any = select(*_WHOSE, func.count()).join(Domain, Domain.instance_id == Instance.id)
    rows = rows.where(
        Domain.status == "verified",
        Domain.verified_at <= hour,
        Domain.certificate["status"].as_string() == "issued",
    )
    return _read(db, rows, meter, hour)


def _read(
    db: Session, rows: Select[*tuple[Any, ...]], meter: str, hour: datetime
) -> Iterator[MeterReading]:
    rows = rows.join(Organization, Organization.id == Instance.org_id).where(HOSTED, LIVE)
    for instance_id, org_id, team_id, region, plan, quantity in db.execute(rows.group_by(*_WHOSE)):
        whose = org_id, team_id, region, plan
        yield MeterReading(instance_id, meter, hour, *whose, int(quantity))


def seats(db: Session, hour: datetime) -> Iterator[MeterReading]:
    """How many people are members of each open organization."""
    rows = select(Organization.id, Organization.plan).where(Organization.status == "open")
    plans = dict(db.execute(rows).tuples().all())
    for org_id, count in memberships.count_by_org(db).items():
        if org_id in plans:
            yield MeterReading(org_id, SEATS, hour, org_id, None, None, plans[org_id], count)


class InstanceOwner(NamedTuple):
    """Whose an instance is now, and where."""

    instance_id: str
    org_id: str
    team_id: str | None
    region: str
    plan: str


def owner(db: Session, instance_id: str) -> InstanceOwner:
    """For the operator: of an instance that is there, or was. Raises RecordNotFound."""
    rows = select(*_WHOSE).join(Organization, Organization.id == Instance.org_id)
    found = db.execute(rows.where(Instance.id == instance_id)).one_or_none()
    if found is None:
        raise RecordNotFound(f"there is no instance {instance_id}")
    return InstanceOwner._make(found)


def owners(db: Session, cell_id: str, ids: Collection[str]) -> dict[str, InstanceOwner]:
    """Of those of these instances that the cell hosts, or hosted until they were erased."""
    rows = select(*_WHOSE).join(Organization, Organization.id == Instance.org_id)
    rows = rows.where(Instance.cell_id == cell_id, Instance.id.in_(ids))
    return {row[0]: InstanceOwner._make(row) for row in db.execute(rows)}
