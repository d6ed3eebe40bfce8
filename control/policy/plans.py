"""The plans, and what each allows."""

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final

from control.policy.sizes import GB, SIZES, TB

SHARED: Final = "shared"
SECURE: Final = "secure"
PLACEMENTS: Final = (SHARED, SECURE)
_ALL_SIZES: Final = tuple(SIZES)


@dataclass(frozen=True)
class Plan:
    """A plan's quotas; None is: no limit.

    `retention_days` is how long the data of a deleted instance is kept, `pauses_when_idle`
    whether instances pause after 15 minutes without connections. `backup_bytes_max` is what all
    backups of live instances take in the store: five times the storage. `backup_copies`: whether
    they can be copied into a second store.
    """

    id: str
    name: str
    seats_max: int | None
    projects_max: int | None
    instances_max: int | None
    storage_bytes_max: int | None
    api_keys_max: int | None
    teams_max: int | None
    subsidiaries_max: int
    manual_backups_max: int
    backup_bytes_max: int | None
    backup_frequency_max: str
    backup_retention_days: int
    pitr_days: int
    backup_copies: bool
    retention_days: int
    sizes: tuple[str, ...]
    placements: tuple[str, ...]
    pauses_when_idle: bool
    custom_domains: bool
    custom_roles: bool


FREE: Final = Plan(
    id="free",
    name="Free",
    seats_max=2,
    projects_max=3,
    instances_max=2,
    storage_bytes_max=2 * GB,
    api_keys_max=10,
    teams_max=1,
    subsidiaries_max=0,
    manual_backups_max=1,
    backup_bytes_max=10 * GB,
    backup_frequency_max="daily",
    backup_retention_days=3,
    pitr_days=0,
    backup_copies=False,
    retention_days=3,
    sizes=("f0",),
    placements=("shared",),
    pauses_when_idle=True,
    custom_domains=False,
    custom_roles=False,
)
SOLO: Final = Plan(
    id="solo",
    name="Solo",
    seats_max=3,
    projects_max=10,
    instances_max=10,
    storage_bytes_max=1 * TB,
    api_keys_max=50,
    teams_max=1,
    subsidiaries_max=0,
    manual_backups_max=5,
    backup_bytes_max=5 * TB,
    backup_frequency_max="daily",
    backup_retention_days=7,
    pitr_days=2,
    backup_copies=False,
    retention_days=7,
    sizes=_ALL_SIZES[: _ALL_SIZES.index("m2") + 1],
    placements=("shared",),
    pauses_when_idle=False,
    custom_domains=True,
    custom_roles=False,
)
TEAM: Final = Plan(
    id="team",
    name="Team",
    seats_max=25,
    projects_max=100,
    instances_max=100,
    storage_bytes_max=50 * TB,
    api_keys_max=500,
    teams_max=None,
    subsidiaries_max=0,
    manual_backups_max=25,
    backup_bytes_max=250 * TB,
    backup_frequency_max="hourly",
    backup_retention_days=30,
    pitr_days=7,
    backup_copies=True,
    retention_days=14,
    sizes=_ALL_SIZES[: _ALL_SIZES.index("l16") + 1],
    placements=("shared",),
    pauses_when_idle=False,
    custom_domains=True,
    custom_roles=True,
)
ENTERPRISE: Final = Plan(
    id="enterprise",
    name="Enterprise",
    seats_max=None,
    projects_max=None,
    instances_max=None,
    storage_bytes_max=None,
    api_keys_max=None,
    teams_max=None,
    subsidiaries_max=100,
    manual_backups_max=100,
    backup_bytes_max=None,
    backup_frequency_max="hourly",
    backup_retention_days=90,
    pitr_days=30,
    backup_copies=True,
    retention_days=30,
    sizes=_ALL_SIZES,
    placements=PLACEMENTS,
    pauses_when_idle=False,
    custom_domains=True,
    custom_roles=True,
)

PLANS: Final[Mapping[str, Plan]] = MappingProxyType(
    {plan.id: plan for plan in (FREE, SOLO, TEAM, ENTERPRISE)}
)


def plans_with_size(size: str) -> list[str]:
    return [plan.id for plan in PLANS.values() if size in plan.sizes]


def plans_with_placement(placement: str) -> list[str]:
    return [plan.id for plan in PLANS.values() if placement in plan.placements]
