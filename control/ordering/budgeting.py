"""Whether the organization's spending cap allows what is ordered; PaymentRequired where not."""

from control.billing import spending
from control.billing.spending import NEW, Outlook
from control.ordering.requester import Requester
from control.policy.orders import Alteration, Order
from control.policy.prices import MICRO_CENTS, whole_cents
from storage.instances.allocations import Planned
from storage.instances.instances import Instance


def check_order(by: Requester, order: Order) -> None:
    _check(by, _ordered(order))


def left_cents(by: Requester, order: Order) -> int | None:
    """What the cap leaves of this month beside the order; None without a cap."""
    cap_cents = by.org.spending_cap_cents
    if cap_cents is None or not by.prices.is_on:
        return None
    outlook = Outlook.of(by.db, by.prices, by.org.id, by.now)
    left = cap_cents * MICRO_CENTS - outlook.committed(_ordered(order)).total
    return max(0, whole_cents(left))


def check_alteration(by: Requester, instance: Instance, asked: Alteration) -> None:
    """What is changed runs afterwards, if the cell has a part in it."""
    size, storage_bytes = asked.size or instance.size, asked.storage_bytes
    if (size, storage_bytes or instance.storage_bytes) == (instance.size, instance.storage_bytes):
        return
    becomes = _as_it_is(instance)._replace(
        size=size, storage_bytes=storage_bytes or instance.storage_bytes, runs=True
    )
    _check(by, becomes, _as_it_is(instance))


def check_wake(by: Requester, instance: Instance) -> None:
    """Of one that was paused, whatever its record wants by now."""
    held = _as_it_is(instance)
    _check(by, held._replace(runs=True), held._replace(runs=False))


def check_return(by: Requester, instance: Instance) -> None:
    """Of one that was deleted, and counts as wanted already."""
    _check(by, _as_it_is(instance))


def _check(by: Requester, becomes: Planned, was: Planned | None = None) -> None:
    spending.check(by.db, by.prices, by.org, by.now, becomes=becomes, was=was)


def _ordered(order: Order) -> Planned:
    return Planned(NEW, order.region or "", order.size, order.storage_bytes or 0, runs=True)


def _as_it_is(instance: Instance) -> Planned:
    return Planned(
        instance.id,
        instance.region,
        instance.size,
        instance.storage_bytes,
        instance.desired_status == "running",
    )
