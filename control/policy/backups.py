"""Backups: when an instance is backed up, how long that is kept, and what a plan allows of it."""

import hashlib
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from types import MappingProxyType
from typing import Any, Final

from control.policy.catalogue import ENGINES
from control.policy.plans import Plan
from control.policy.violations import Violation, wrong

PERIODS: Final[Mapping[str, timedelta]] = MappingProxyType(
    {"weekly": timedelta(days=7), "daily": timedelta(days=1), "hourly": timedelta(hours=1)}
)
"""By frequency, rarest first."""
DEFAULT_FREQUENCY: Final = "daily"
DEFAULT_START: Final = "02:00"
WINDOW: Final = timedelta(hours=2)
"""Instances begin spread over this time, so that those of a cell do not all copy at once."""
PRE_CHANGE_KEPT: Final = 5
"""Of an instance: as many changes as one likes are made in a day."""
MISSED_MAX: Final = 100
"""Of an instance, for which it is noted that no backup was begun: hourly ones of four days."""
HEALTH_PLANS: Final = ("team", "enterprise")
SEVERAL_DATABASES: Final = frozenset({"postgres", "mysql"})
"""Protocols of engines of which one database is dumped, and not all that there is."""
NO_COPIES: Final = "none"
SECOND_STORE: Final = "second_store"
"""Copy targets: the one that an installation may have."""
_MONDAY: Final = datetime.fromisoformat("1970-01-05T00:00:00+00:00")


@dataclass(frozen=True)
class BackupOverrides:
    """What the owner of an instance chose. None: the default."""

    frequency: str | None = None
    retention_days: int | None = None
    window_start: str | None = None


@dataclass(frozen=True)
class BackupSchedule:
    """What holds for an instance. `window_start` is HH:MM in UTC."""

    frequency: str
    retention_days: int
    window_start: str

    def last_slot(self, instance_id: str, moment: datetime) -> datetime:
        """When the turn began that the moment is in.

        Instances have their own minutes of the window, and of a week their own day.
        """
        period = PERIODS[self.frequency]
        first = _MONDAY + self._offset(instance_id)
        return first + (moment - first) // period * period

    def next_slot(self, instance_id: str, moment: datetime) -> datetime:
        return self.last_slot(instance_id, moment) + PERIODS[self.frequency]

    @property
    def apart(self) -> timedelta:
        """How far slots are apart at least, also where the window is moved between them.

        Of a week the day stays the same.
        """
        period = min(PERIODS[self.frequency], PERIODS["daily"])
        return period - min(WINDOW, period / 2)

    @property
    def window_end(self) -> str:
        """HH:MM in UTC."""
        return f"{_MONDAY + self._start + WINDOW:%H:%M}"

    @property
    def _start(self) -> timedelta:
        hours, _, minutes = self.window_start.partition(":")
        return timedelta(hours=int(hours), minutes=int(minutes))

    def _offset(self, instance_id: str) -> timedelta:
        digest = hashlib.blake2b(instance_id.encode(), digest_size=8).digest()
        chosen = int.from_bytes(digest)
        if self.frequency == "hourly":
            return timedelta(seconds=chosen % 3600)
        day = chosen // 10_000 % 7 if self.frequency == "weekly" else 0
        return self._start + timedelta(days=day, seconds=chosen % int(WINDOW.total_seconds()))


def frequencies(plan: Plan) -> list[str]:
    """Those that the plan allows, rarest first."""
    names = list(PERIODS)
    return names[: names.index(plan.backup_frequency_max) + 1]


def effective(plan: Plan, chosen: BackupOverrides) -> BackupSchedule:
    """What the plan leaves of the choices: it may be another than when they were made."""
    allowed = frequencies(plan)
    frequency = chosen.frequency or DEFAULT_FREQUENCY
    return BackupSchedule(
        frequency if frequency in allowed else allowed[-1],
        min(chosen.retention_days or plan.backup_retention_days, plan.backup_retention_days),
        chosen.window_start or DEFAULT_START,
    )


def copy_targets(plan: Plan) -> list[str]:
    """Those that the plan allows."""
    return [NO_COPIES, SECOND_STORE] if plan.backup_copies else [NO_COPIES]


def copy_target(plan: Plan, chosen: str | None) -> str:
    """Where backups are copied to: nowhere, unless the owner chose a target that the plan has."""
    return chosen if chosen is not None and chosen in copy_targets(plan) else NO_COPIES


def is_copied(plan: Plan, chosen: str | None) -> bool:
    """Whether backups are copied, with that copy target chosen."""
    return copy_target(plan, chosen) != NO_COPIES


def check_overrides(plan: Plan, asked: Mapping[str, Any]) -> list[Violation]:
    """Everything wrong with what is to be chosen."""
    found: list[Violation] = []
    frequency, days = asked.get("frequency"), asked.get("retention_days")
    if frequency is not None and frequency not in frequencies(plan):
        message = (
            f"the {plan.id} plan allows backups {plan.backup_frequency_max} at most; choose"
            f" one of {', '.join(frequencies(plan))}, or change the plan"
        )
        found.append(wrong("frequency", "plan", message))
    if days is not None and days > plan.backup_retention_days:
        message = (
            f"the {plan.id} plan keeps backups for at most {plan.backup_retention_days} days;"
            " choose less, or change the plan"
        )
        found.append(wrong("retention_days", "plan", message))
    target = asked.get("copy_target")
    if target is not None and target not in copy_targets(plan):
        message = f"the {plan.id} plan has no copies of backups; choose none, or change the plan"
        found.append(wrong("copy_target", "plan", message))
    return found


def check_restore(body: Mapping[str, Any], name: str) -> list[Violation]:
    """Everything wrong with the members of a request to restore a backup of the instance `name`."""
    confirmed = body.get("confirm_name")
    if body.get("mode", "new_instance") == "new_instance":
        if confirmed is None:
            return []
        return [wrong("confirm_name", "mode", "only a restore in place is confirmed by a name")]
    found = [
        wrong(each, "mode", f"a restore in place has no {each}: the instance stays as it is")
        for each in ("name", "size", "storage_bytes", "project_id")
        if each in body
    ]
    if confirmed != name:
        message = "a restore in place replaces all data: type the instance's name to confirm it"
        found.append(wrong("confirm_name", "const", message))
    return found


def check_dump(engine_id: str, body: Mapping[str, Any]) -> list[Violation]:
    """Everything wrong with a request for a dump of an instance of that engine."""
    engine = ENGINES[engine_id]
    if "database" not in body or engine.protocol in SEVERAL_DATABASES:
        return []
    message = f"a dump of {engine.name} has all that there is; leave the database out"
    return [wrong("database", "engine", message)]


@dataclass(frozen=True)
class BackupHistory:
    """Of an instance: since when it has data, and what is known of its backups.

    `paused_since`: since when nothing can have changed; None while it runs. `newest_data` is the
    moment of the newest data that can be restored.
    """

    ready_at: datetime
    paused_since: datetime | None
    newest_slot: datetime | None
    newest_data: datetime | None


def due_slot(
    schedule: BackupSchedule, instance_id: str, turns: BackupHistory, moment: datetime
) -> datetime | None:
    """The slot that a backup is to be begun for now; None if none is.

    Of slots that were missed only the last one is made up for. The first backup of an instance
    waits no longer than a day. One that is paused, and backed up since then, needs no other.
    """
    if turns.paused_since and turns.newest_data and turns.newest_data > turns.paused_since:
        return None
    if turns.newest_slot is None and schedule.frequency == "weekly":
        schedule = BackupSchedule("daily", schedule.retention_days, schedule.window_start)
    slot = schedule.last_slot(instance_id, moment)
    if turns.newest_slot is not None and slot - turns.newest_slot < schedule.apart:
        return None
    begun = max(turns.ready_at, turns.newest_slot or turns.ready_at)
    return slot if slot > begun else None


def missed_slots(schedule: BackupSchedule, since: datetime, slot: datetime) -> list[datetime]:
    """Those between, newest first and not more than MISSED_MAX; they are not made up for."""
    at = slot - PERIODS[schedule.frequency]
    found: list[datetime] = []
    while at - since >= schedule.apart and len(found) < MISSED_MAX:
        found.append(at)
        at -= PERIODS[schedule.frequency]
    return found


@dataclass(frozen=True)
class KeptBackup:
    """One that can be restored; an incremental one with its parent, and what that builds on."""

    id: str
    kind: str
    completed_at: datetime
    parent_id: str | None = None


def expired(
    kept: Iterable[KeptBackup], days: int, moment: datetime, needed: Collection[str] = ()
) -> list[str]:
    """The ids of those of an instance whose retention is over.

    Never of the newest, whatever its age, nor of those that restores under way read from, nor of
    what those that stay build on. Manual backups have no retention: who asked for one deletes it.
    Of those before changes, which nobody waits for, the newest `PRE_CHANGE_KEPT` are kept.
    """
    by_age = sorted(kept, key=lambda each: (each.completed_at, each.id))
    changes = [each.id for each in by_age if each.kind == "pre_change"]
    outnumbered = set(changes[:-PRE_CHANGE_KEPT])
    over = [
        each.id
        for each in by_age[:-1]
        if each.kind != "manual"
        and each.id not in needed
        and (each.id in outnumbered or each.completed_at + timedelta(days=days) <= moment)
    ]
    staying = {each.id for each in by_age} - set(over)
    built_on = ancestors({each.id: each.parent_id for each in by_age}, staying)
    return [each for each in over if each not in built_on]


def ancestors(parents: Mapping[str, str | None], of: Iterable[str]) -> set[str]:
    """What these build on, directly or not; of each backup its parent is known, if it has one."""
    found: set[str] = set()
    for each in of:
        parent = parents.get(each)
        while parent is not None and parent not in found:
            found.add(parent)
            parent = parents.get(parent)
    return found


def score(completed: int, failed: int, verified: int) -> int | None:
    """Of 100: how many of the backups that were due are there and verified. None: none was due."""
    due = completed + failed
    return round(100 * verified / due) if due else None


def month(name: str) -> tuple[datetime, datetime]:
    """When a month such as 2026-11 begins in UTC, and when it ends."""
    begins = datetime.fromisoformat(f"{name}-01T00:00:00+00:00")
    return begins, (begins + timedelta(days=31)).replace(day=1)
