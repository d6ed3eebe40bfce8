"""Recovery to a moment: which instances have it, which moments, and the backups it needs."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

from control.policy.catalogue import ENGINES
from control.policy.plans import Plan
from control.policy.violations import Violation, wrong

FEATURE: Final = "pitr"
"""Of engines, in the catalogue."""
LAG: Final = timedelta(seconds=150)
"""What a cell has not told yet may be archived by now, and is by the time that it is restored."""
BASE_REST: Final = timedelta(minutes=10)
"""After a backup was begun that archived WAL is to continue, before another one is."""


@dataclass(frozen=True)
class MomentRange:
    """Moments that can be restored, all of them."""

    begins_at: datetime
    ends_at: datetime


@dataclass(frozen=True)
class RecoveryBase:
    """A backup that WAL continues, from this moment on."""

    id: str
    consistent_at: datetime


def moment_ranges(told: Iterable[Mapping[str, str]]) -> list[MomentRange]:
    """As a cell writes them."""
    return [
        MomentRange(
            datetime.fromisoformat(each["begins_at"]), datetime.fromisoformat(each["ends_at"])
        )
        for each in told
    ]


def is_supported(engine: str) -> bool:
    return FEATURE in ENGINES[engine].features


def is_archived(plan: Plan, engine: str, chosen: bool | None) -> bool:
    """Whether the WAL of an instance is archived: where it can be, unless its owner said no."""
    return plan.pitr_days > 0 and is_supported(engine) and chosen is not False


def check_archiving(plan: Plan, engine: str, asked: bool | None) -> list[Violation]:
    """What is wrong with turning it on, if that is asked."""
    if not asked:
        return []
    if not is_supported(engine):
        message = f"{engine} does not support point-in-time recovery; leave it out"
        return [wrong("continuous_archiving", "engine", message)]
    if not plan.pitr_days:
        message = f"the {plan.id} plan has no point-in-time recovery; change the plan"
        return [wrong("continuous_archiving", "plan", message)]
    return []


def window(ranges: Iterable[MomentRange], days: int, moment: datetime) -> list[MomentRange]:
    """As much of the ranges as lies within the plan's days, oldest first."""
    since = moment - timedelta(days=days)
    return [
        MomentRange(max(each.begins_at, since), each.ends_at)
        for each in ranges
        if each.ends_at > since and days
    ]


def can_restore(at: datetime, found: Sequence[MomentRange], moment: datetime) -> bool:
    """Whether the moment is in the window; what is newer than the cell has told is let through.

    The cell decides on that, which knows, and before it replaces anything.
    """
    if any(each.begins_at <= at <= each.ends_at for each in found):
        return True
    return bool(found) and found[-1].ends_at <= at <= min(moment, found[-1].ends_at + LAG)


def base_for(bases: Iterable[RecoveryBase], at: datetime) -> str | None:
    """The id of the newest backup that the moment can be recovered from."""
    earlier = [each for each in bases if each.consistent_at <= at]
    return max(earlier, key=lambda each: each.consistent_at).id if earlier else None


def needed(
    bases: Iterable[RecoveryBase], ranges: Iterable[MomentRange], days: int, moment: datetime
) -> set[str]:
    """The ids of the backups without which moments within the plan's days would be lost.

    Of each range that reaches into them the newest one before they begin, or its first.
    """
    since, every = moment - timedelta(days=days), list(bases)
    found = set()
    for each in ranges:
        if not days or each.ends_at <= since:
            continue
        own = [one for one in every if each.begins_at <= one.consistent_at <= each.ends_at]
        kept = base_for(own, max(since, each.begins_at))
        found |= {kept} if kept else set()
    return found
