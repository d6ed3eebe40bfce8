"""Approvals: when a team's policy asks for one of an order, and who sees what waits."""

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any, Final, Self, TypedDict

from control.policy.prices import PriceList, amount
from control.policy.rights import Rights
from control.policy.sizes import SIZES
from control.policy.violations import Violation, wrong

LETTERS_MAX: Final = 10
"""How many of those who can decide are written to about one order."""
DECIDE: Final = "approvals:decide"
_SIZES: Final = tuple(SIZES)
_FIELD: Final = "approval_policy"


class Reason(TypedDict):
    """A rule of the policy that an order falls under, and what a reader is told of it."""

    rule: str
    message: str


@dataclass(frozen=True)
class Policy:
    """What a team's orders need approval for: whatever any of these says. As it comes, nothing."""

    every_order: bool = False
    above_size: str | None = None
    above_monthly_cost_cents: int | None = None
    over_budget: bool = False

    @classmethod
    def of(cls, told: Mapping[str, Any] | None) -> Self:
        """Of what a team's record holds, or a body; None is: never."""
        known = {field.name for field in fields(cls)}
        return cls(**{name: value for name, value in (told or {}).items() if name in known})

    @property
    def is_never(self) -> bool:
        return self == Policy()

    def as_json(self) -> dict[str, Any]:
        return asdict(self)


@dataclass(frozen=True)
class Asked:
    """An instance as it is asked for, and what it costs in a month of running.

    `rest_cents` is what all others of the team cost. `budget_cents` is what the team may spend in a
    month; None: it has no budget.
    """

    size: str
    cost_cents: int
    rest_cents: int = 0
    budget_cents: int | None = None
    currency: str = "USD"


def cost_cents(prices: PriceList, held: Iterable[tuple[str, str, int]]) -> int:
    """What instances of these regions, sizes and storage cost in a month of running."""
    return sum(prices.instance_month_cents(*each) for each in held)


def is_larger(asked: tuple[str, int], *, than: tuple[str, int]) -> bool:
    """Whether an instance of that size and storage is more than one of the other in any way."""
    (size, storage_bytes), (size_now, held_bytes) = asked, than
    return _SIZES.index(size) > _SIZES.index(size_now) or storage_bytes > held_bytes


def seen_in(rights: Rights) -> frozenset[str] | None:
    """The teams whose orders a caller sees, beside their own; None: all there are.

    Who reads the audit log learns of them there anyway.
    """
    where = None if rights.has("audit:read") else rights.where(DECIDE)
    return None if where is None else where.teams


def reasons(policy: Policy, asked: Asked) -> list[Reason]:
    """Every rule of the policy that what is asked falls under; none, and it needs no approval."""
    return [
        Reason(rule=rule, message=message)
        for rule, holds, message in (
            ("every_order", policy.every_order, "every order of the team needs approval"),
            *_by_size(policy.above_size, asked),
            *_by_cost(policy.above_monthly_cost_cents, asked),
            *(_by_budget(asked) if policy.over_budget else ()),
        )
        if holds
    ]


def _by_size(limit: str | None, asked: Asked) -> Iterable[tuple[str, bool, str]]:
    # A size that is not offered any longer bounds nothing less: every size is above it.
    if limit is not None:
        above = limit not in SIZES or _SIZES.index(asked.size) > _SIZES.index(limit)
        yield "above_size", above, f"size {asked.size} is above {limit}"


def _by_cost(limit: int | None, asked: Asked) -> Iterable[tuple[str, bool, str]]:
    if limit is not None:
        cost, most = (amount(each, asked.currency) for each in (asked.cost_cents, limit))
        message = f"it costs {cost} a month, above {most}"
        yield "above_monthly_cost", asked.cost_cents > limit, message


def _by_budget(asked: Asked) -> Iterable[tuple[str, bool, str]]:
    """Whether the team's instances and this one exceed its budget; without one, nothing does."""
    if asked.budget_cents is not None:
        total = asked.rest_cents + asked.cost_cents
        cost, most = (amount(each, asked.currency) for each in (total, asked.budget_cents))
        message = f"with it the team's instances cost {cost} a month, above its budget of {most}"
        # What costs nothing exceeds no budget, even one that is exceeded already.
        yield "over_budget", asked.cost_cents > 0 and total > asked.budget_cents, message


def check_policy(policy: Policy, budget_cents: int | None) -> list[Violation]:
    """Everything wrong with a team that has this policy and this budget."""
    found: list[Violation] = []
    if policy.above_size is not None and policy.above_size not in _SIZES[:-1]:
        smaller = ", ".join(_SIZES[:-1])
        message = (
            f"{policy.above_size!r} is not a size that instances can be above; choose one of"
            f" {smaller}"
        )
        found.append(wrong(f"{_FIELD}/above_size", "enum", message))
    if policy.over_budget and budget_cents is None:
        message = (
            "a team without a monthly budget cannot ask for approval above it; set"
            " monthly_budget_cents too, or turn over_budget off"
        )
        found.append(wrong(f"{_FIELD}/over_budget", "budget", message))
    return found
