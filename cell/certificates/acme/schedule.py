"""Whose domain is tried next: tenants take turns, and each orders so many certificates an hour."""

import time
from collections import defaultdict, deque
from collections.abc import Callable, Mapping
from itertools import count
from typing import Final

ATTEMPTS_MAX: Final = 4
"""At once in a cell, and one of a tenant: most of an attempt is waiting for others' servers."""
ORDERS_PER_HOUR: Final = 25
"""Of a tenant. All use one account, of which servers take some hundred orders in three hours."""
HOUR_S: Final = 3_600.0


class OrderSchedule:
    """`hosts` has the domains of the cell, each with the tenant it belongs to.

    A tenant whose servers keep the ACME server waiting, or who gets its rate limits to apply, holds
    up nobody else.
    """

    def __init__(self) -> None:
        self.hosts: Mapping[str, str] = {}
        self._busy: set[str] = set()
        self._turns = count(1)
        self._last_turn: dict[str, int] = {}
        self._rests_until: dict[str, float] = {}
        self._ordered_at: defaultdict[str, deque[float]] = defaultdict(deque)

    def want(self, hosts: Mapping[str, str]) -> None:
        """Who removes all domains is still known for the orders of the hour."""
        self.hosts = dict(hosts)
        known = {*self._last_turn, *self._rests_until, *self._ordered_at}
        for tenant in known - {*self.hosts.values()} - self._busy:
            if not self._orders(tenant) and self._rests_until.get(tenant, 0.0) <= time.time():
                for each in (self._last_turn, self._rests_until, self._ordered_at):
                    each.pop(tenant, None)

    def choose(self, due_at: Callable[[str], float], failures: Callable[[str], int]) -> str | None:
        """The host to try now: of the tenant whose turn is longest ago, what failed least."""
        if len(self._busy) >= ATTEMPTS_MAX:
            return None
        now = time.time()
        ready = [host for host in self._waiting() if self._at(host, due_at) <= now]
        return min(ready, key=lambda host: (self._turn_of(host), failures(host)), default=None)

    def wait_s(self, due_at: Callable[[str], float], most_s: float) -> float:
        """How long nothing can begin; less where an attempt ends, which whoever waits is told."""
        if len(self._busy) >= ATTEMPTS_MAX:
            return most_s
        now = time.time()
        return min([most_s, *(self._at(host, due_at) - now for host in self._waiting())])

    def begin(self, host: str) -> str:
        """The tenant, for `end`: the domain may be removed in the meantime."""
        tenant = self.hosts[host]
        self._busy.add(tenant)
        self._last_turn[tenant] = next(self._turns)
        return tenant

    def end(self, tenant: str) -> None:
        self._busy.discard(tenant)

    def ordered(self, tenant: str) -> None:
        self._ordered_at[tenant].append(time.time())

    def rest(self, tenant: str, for_s: float) -> None:
        """The ACME server said that too much was asked for; of whom, it does not say for sure."""
        self._rests_until[tenant] = time.time() + for_s

    def _waiting(self) -> list[str]:
        return [host for host, tenant in self.hosts.items() if tenant not in self._busy]

    def _turn_of(self, host: str) -> int:
        return self._last_turn.get(self.hosts[host], 0)

    def _at(self, host: str, due_at: Callable[[str], float]) -> float:
        tenant = self.hosts[host]
        orders = self._orders(tenant)
        again_at = orders[0] + HOUR_S if len(orders) >= ORDERS_PER_HOUR else 0.0
        return max(due_at(host), again_at, self._rests_until.get(tenant, 0.0))

    def _orders(self, tenant: str) -> deque[float]:
        """Of the last hour."""
        orders = self._ordered_at.get(tenant, deque())
        while orders and orders[0] <= time.time() - HOUR_S:
            orders.popleft()
        return orders
