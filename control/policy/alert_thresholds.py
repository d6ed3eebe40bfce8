"""From which figures on an alert is raised, and from which it is over: one table, no code.

Between both, what is raised stays and nothing new is, so that no alert comes and goes with a figure
that moves about a threshold.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from control.policy.alert_kinds import CERTIFICATE, CONNECTIONS, QUOTA, STORAGE, UNREACHABLE

INFO: Final = "info"
WARNING: Final = "warning"
CRITICAL: Final = "critical"
CLEAR: Final = "clear"
_RANK: Final = (CLEAR, None, INFO, WARNING, CRITICAL)


@dataclass(frozen=True)
class Threshold:
    """`levels` are figures and the severity from each on, the mildest first; `clear` ends it.

    Where `falls`, less is worse.
    """

    kind: str
    measure: str
    unit: str
    levels: tuple[tuple[float, str], ...]
    clear: float
    falls: bool = False


DAYS_LEFT: Final = Threshold(
    STORAGE, "until it is full", "days", ((7, WARNING), (2, CRITICAL)), 9, falls=True
)
USED: Final = Threshold(STORAGE, "of the storage used", "%", ((95, CRITICAL),), 90)
PEAK: Final = Threshold(
    CONNECTIONS, "peak of connections", "%", ((80, WARNING), (95, CRITICAL)), 70
)
VALID: Final = Threshold(
    CERTIFICATE, "until it expires", "days", ((14, WARNING), (3, CRITICAL)), 15, falls=True
)
SILENCE: Final = Threshold(
    UNREACHABLE, "since the cell responded", "s", ((120, WARNING), (300, CRITICAL)), 60
)
QUOTA_USED: Final = Threshold(QUOTA, "of the quota used", "%", ((80, INFO), (100, WARNING)), 75)


def level(threshold: Threshold, best: float, worst: float | None = None) -> str | None:
    """The severity, CLEAR, or None between both, of a figure that was between these two.

    All of it must have reached a threshold, and all of it must be clear.
    """
    worst = best if worst is None else worst
    found = None
    for limit, severity in threshold.levels:
        if best <= limit if threshold.falls else best >= limit:
            found = severity
    if found is not None:
        return found
    is_clear = worst > threshold.clear if threshold.falls else worst < threshold.clear
    return CLEAR if is_clear else None


def worst_of(levels: Iterable[str | None]) -> str | None:
    """CLEAR only where all are."""
    return max(levels, key=_RANK.index)
