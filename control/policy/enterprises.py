"""The terms of an enterprise, and what its organizations' instances cost together."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import date
from typing import Any

from control.policy.plans import PLANS, Plan
from control.policy.prices import PriceList
from control.policy.violations import Violation, wrong


@dataclass(frozen=True)
class Sums:
    """Of live instances. The cost is at list prices, as if all of them ran for a month."""

    instances: int = 0
    storage_bytes: int = 0
    usd_cents_month: int = 0

    def __add__(self, other: "Sums") -> "Sums":
        return Sums(
            self.instances + other.instances,
            self.storage_bytes + other.storage_bytes,
            self.usd_cents_month + other.usd_cents_month,
        )


def sums(prices: PriceList, held: Iterable[tuple[str, str, int, int]]) -> Sums:
    """Of instances as (region, size, storage_bytes, how many)."""
    whole = Sums()
    for region, size, storage_bytes, count in held:
        cost = prices.instance_month_cents(region, size, storage_bytes)
        whole += Sums(count, storage_bytes * count, cost * count)
    return whole


def check_terms(terms: Mapping[str, Any]) -> list[Violation]:
    """Everything wrong with the terms as they are to be."""
    found: list[Violation] = []
    days: dict[str, date] = {}
    for name in ("starts_on", "ends_on"):
        given = terms.get(name)
        if given is None:
            continue
        try:
            days[name] = date.fromisoformat(given)
        except ValueError:
            found.append(wrong(name, "format", f"{given!r} is not a day of the calendar"))
    if len(days) > 1 and days["ends_on"] < days["starts_on"]:
        message = f"it must not be before starts_on, which is {terms['starts_on']}"
        found.append(wrong("ends_on", "minimum", message))
    return found


def check_plan(plan: Plan) -> list[Violation]:
    """Whether an organization on this plan can be a parent."""
    if plan.subsidiaries_max:
        return []
    offering = " or ".join(each.id for each in PLANS.values() if each.subsidiaries_max)
    message = f"the {plan.id} plan has no enterprises; change to the plan {offering}"
    return [wrong("", "plan", message)]
