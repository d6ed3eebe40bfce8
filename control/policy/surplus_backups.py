"""Which backups go as all of an organization's take more than its plan allows."""

from collections.abc import Collection, Iterable
from dataclasses import dataclass
from datetime import datetime

from control.policy.backups import ancestors
from control.policy.plans import Plan


@dataclass(frozen=True)
class StoredBackup:
    """A completed one of a live instance."""

    id: str
    instance_id: str
    kind: str
    completed_at: datetime
    stored_bytes: int
    parent_id: str | None = None


def surplus_backups(
    plan: Plan, stored: Iterable[StoredBackup], needed: Collection[str] = ()
) -> list[StoredBackup]:
    """Those that are to go as all of an organization's take more than its plan allows.

    Automatic ones, the oldest first. Each instance keeps its newest backup, and what is `needed`
    stays with all that it builds on; so does what was asked for, which counts nevertheless. With a
    full backup go the increments that build on it, the newest of them first.
    """
    by_age = sorted(stored, key=lambda each: (each.completed_at, each.id))
    staying = {*{each.instance_id: each.id for each in by_age}.values(), *needed}
    staying |= {each.id for each in by_age if each.kind == "manual"}
    staying |= ancestors({each.id: each.parent_id for each in by_age}, staying)
    over = 0 if plan.backup_bytes_max is None else _total(by_age) - plan.backup_bytes_max
    found: dict[str, StoredBackup] = {}
    for each in _leaves_first(by_age):
        if over <= 0:
            break
        if each.id not in staying:
            found[each.id] = each
            over -= each.stored_bytes
    return list(found.values())


def _leaves_first(by_age: Iterable[StoredBackup]) -> list[StoredBackup]:
    """Oldest first, but for what builds on each, which comes before it."""
    series: dict[str, list[StoredBackup]] = {}
    for each in by_age:
        own = series.get(each.parent_id or "", [])
        own.insert(0, each)
        series[each.id] = own
    return list({one.id: one for each in series.values() for one in each}.values())


def _total(stored: Iterable[StoredBackup]) -> int:
    return sum(each.stored_bytes for each in stored)
