"""What `menagerie recover` found, and what whoever ran it does next."""

from collections.abc import Collection
from dataclasses import asdict, dataclass
from typing import Any

from sqlalchemy import select
from ulid import ULID

from cell.backups import catalogue
from cell.backups.manifest import BackupName
from cell.backups.store import StoreError
from cell.backups.two_stores import TwoStores, stores_at
from cell.timestamps import moment
from menagerie.settings import Settings
from storage.database import Database
from storage.instances.instances import GONE, Instance


@dataclass(frozen=True)
class FoundInstance:
    """One that the recovered database knows; `backup` is the newest in the store."""

    instance_id: str
    org_id: str
    name: str
    wanted: str
    is_ready: bool
    backup: str | None = None
    backup_at: str | None = None


@dataclass(frozen=True)
class RecoveryReport:
    """`store_fault` is why the store could not be looked into; None where it could."""

    made_at: str
    version: str
    home: str
    store_url: str
    former_store_url: str
    source: str
    instances: tuple[FoundInstance, ...]
    orphans: tuple[str, ...]
    """Backups, as `<instance id>/<backup id>`, of instances that the database does not know."""
    store_fault: str | None = None
    copy_store_url: str = ""
    """Of the second store; empty: there is none."""

    def document(self) -> dict[str, Any]:
        return asdict(self)


def look(settings: Settings, database: Database, **made: str) -> RecoveryReport:
    known = _known(database)
    found: dict[str, BackupName] = {}
    fault = None
    try:
        found = catalogue.newest(stores_of(settings))
    except (StoreError, OSError) as error:
        fault = str(error)
    return RecoveryReport(
        home=str(settings.root),
        store_url=settings.backup_store,
        copy_store_url=settings.backup_copy_store_url,
        instances=tuple(_with_backup(each, found.get(each.instance_id)) for each in known),
        orphans=_orphans(found, {each.instance_id for each in known}),
        store_fault=fault,
        **made,
    )


def stores_of(settings: Settings) -> TwoStores:
    """As the operator named them."""
    return stores_at(
        settings.backup_store,
        settings.backup_copy_store_url,
        makes_folder=not settings.backup_store_url,
    )


def _known(database: Database) -> list[FoundInstance]:
    """All but those that are erased."""
    rows = select(Instance).where(Instance.status != "erased").order_by(Instance.id)
    with database.read() as db:
        return [
            FoundInstance(
                *(each.id, each.org_id, each.name, each.desired_status),
                is_ready=each.ready_at is not None,
            )
            for each in db.scalars(rows)
        ]


def _with_backup(each: FoundInstance, name: BackupName | None) -> FoundInstance:
    given = asdict(each)
    if name is not None:
        made_at = ULID.from_str(name.backup_id.removeprefix("bkp_")).timestamp
        given |= {"backup": name.backup_id, "backup_at": moment(made_at)}
    return FoundInstance(**given)


def _orphans(found: dict[str, BackupName], known: Collection[str]) -> tuple[str, ...]:
    unknown = sorted(found.keys() - set(known))
    return tuple(f"{each}/{found[each].backup_id}" for each in unknown)


def text(report: RecoveryReport) -> str:
    """For a person."""
    lines = [
        f"recovered {report.home} as it was at {report.made_at} (version {report.version})",
        f"the store of backups is {report.store_url}",
    ]
    if report.store_fault is not None:
        lines.append(f"  it cannot be read now: {report.store_fault}")
    if report.store_url != report.former_store_url:
        lines.append(f"  it was {report.former_store_url}: set backup_store_url if it should be")
    if report.copy_store_url:
        lines.append(f"the second store is {report.copy_store_url}")
    known = {each.rstrip("/") for each in (report.store_url, report.copy_store_url)}
    if "://" in report.source and report.source.rstrip("/") not in known:
        lines.append(f"  this came from {report.source}: set backup_store_url to that")
    restored = [each for each in report.instances if each.wanted not in GONE]
    lines.append(f"{len(restored)} instances will be restored once the service runs:")
    lines += [f"  {each.instance_id} {each.name}: {_told(each, report)}" for each in restored]
    if deleted := len(report.instances) - len(restored):
        lines.append(f"{deleted} deleted instances stay deleted; their backups can be restored")
    if report.orphans:
        lines += [
            "the store also has backups of instances that this state does not know, as they were",
            "created later or have been erased; unpack one with `python -m cell.backups`:",
            *(f"  {each}" for each in report.orphans),
        ]
    lines += ["next: menagerie serve --home " + report.home]
    return "\n".join(lines)


def _told(each: FoundInstance, report: RecoveryReport) -> str:
    if each.backup is not None:
        return f"from {each.backup} of {each.backup_at}"
    if report.store_fault is not None:
        return "from its newest backup, once the store can be read"
    if not each.is_ready:
        return "it was still being created, and will be created again"
    return "no backup of it is in the store, so its data is lost; it will be `failed`"
