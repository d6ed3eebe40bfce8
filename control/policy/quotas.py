"""What a plan allows an organization in all: instances, storage, and what it has deleted."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from control.policy.plans import Plan
from control.policy.violations import Violation, gigabytes, wrong

GONE_TIMES: Final = 5
"""How many times a plan's quotas its deleted instances, not erased yet, may hold."""


@dataclass(frozen=True)
class Usage:
    """What the org's live instances use already, and what those that are gone still hold."""

    instances: int = 0
    storage_bytes: int = 0
    gone: int = 0
    gone_storage_bytes: int = 0


def check_return(plan: Plan, usage: Usage) -> list[Violation]:
    """Everything wrong with a deleted instance coming back; `usage` counts it already."""
    found: list[Violation] = []
    if plan.instances_max is not None and usage.instances > plan.instances_max:
        message = (
            f"the {plan.id} plan allows {plan.instances_max} instances, and with this one "
            f"{usage.instances} are live; delete one or change the plan"
        )
        found.append(wrong("", "quota", message))
    limit = plan.storage_bytes_max
    if limit is not None and usage.storage_bytes > limit:
        message = (
            f"the {plan.id} plan allows {gigabytes(limit)} of storage in all, and with this "
            f"instance it would be {gigabytes(usage.storage_bytes)}; delete an instance or "
            "change the plan"
        )
        found.append(wrong("", "quota", message))
    return found


def check_one_more(plan: Plan, usage: Usage) -> Iterator[Violation]:
    """Whether one more instance may be ordered, whatever its storage."""
    if plan.instances_max is not None and usage.instances >= plan.instances_max:
        message = (
            f"the {plan.id} plan allows {plan.instances_max} instances and you have "
            f"{usage.instances}; delete one or change the plan"
        )
        yield wrong("", "quota", message)
    yield from _check_gone(plan, usage)


def _check_gone(plan: Plan, usage: Usage) -> Iterator[Violation]:
    """Deleted instances hold their storage until they are erased, so they are limited too."""
    too_many = plan.instances_max is not None and usage.gone >= GONE_TIMES * plan.instances_max
    limit = plan.storage_bytes_max
    if too_many or (limit is not None and usage.gone_storage_bytes >= GONE_TIMES * limit):
        message = (
            f"your {usage.gone} deleted instances still hold {gigabytes(usage.gone_storage_bytes)}"
            f" of storage, {GONE_TIMES} times what the {plan.id} plan allows; erase one of them"
            " (`…/actions/erase`), or wait until their retention is over"
        )
        yield wrong("", "quota", message)


def check_more_storage(added_bytes: int, plan: Plan, usage: Usage) -> Iterator[Violation]:
    """Whether so much storage may be had in addition."""
    used = usage.storage_bytes
    if plan.storage_bytes_max is None or added_bytes <= 0:
        return
    if used + added_bytes > plan.storage_bytes_max:
        left = gigabytes(max(0, plan.storage_bytes_max - used))
        message = (
            f"the {plan.id} plan allows {gigabytes(plan.storage_bytes_max)} of storage in total "
            f"and {left} is left; ask for less, delete an instance or change the plan"
        )
        yield wrong("storage_bytes", "quota", message)
