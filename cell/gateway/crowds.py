"""Who gives way where a pool is full: the oldest connection of the address that has most of it.

So no small number of addresses keeps anybody else out of it.
"""

from collections import defaultdict
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from cell.gateway.shared import Shared

WANTED = "wanted"


class Member(Protocol):
    @property
    def gives_way(self) -> bool:
        """Whether it may be hung up on now for the sake of another."""

    def close(self) -> None: ...


class Crowd:
    """The connections that hold one pool, here in this worker, by whom they come from."""

    def __init__(self) -> None:
        self._of: dict[str, dict[Member, None]] = {}

    def __bool__(self) -> bool:
        return bool(self._of)

    def of(self, customer: str) -> int:
        return len(self._of.get(customer, ()))

    def join(self, customer: str, member: Member) -> int:
        """How many that customer has now."""
        own = self._of.setdefault(customer, {})
        own[member] = None
        return len(own)

    def leave(self, customer: str, member: Member) -> None:
        own = self._of.get(customer, {})
        own.pop(member, None)
        if not own:
            self._of.pop(customer, None)

    def oldest(self, customer: str) -> Member:
        return next(iter(self._of[customer]))

    def first_to_go(self, newcomer: str = "") -> Member | None:
        """The oldest of who has most, where the newcomer has fewer."""
        most: list[Member] = []
        for members in self._of.values():
            if len(members) > len(most):
                willing = [each for each in members if each.gives_way]
                most = max(most, willing, key=len)
        return most[0] if len(most) > self.of(newcomer) else None


class Pools:
    """The crowds of a worker by pool. Other workers are asked for room where this one has none."""

    def __init__(self, shared: "Shared") -> None:
        self._shared = shared
        self._crowds: defaultdict[str, Crowd] = defaultdict(Crowd)
        self._wanted: set[str] = set()

    def join(self, pool: str, customer: str, member: Member) -> None:
        self._crowds[pool].join(customer, member)

    def leave(self, pool: str, customer: str, member: Member) -> None:
        crowd = self._crowds[pool]
        crowd.leave(customer, member)
        if not crowd:
            del self._crowds[pool]

    def make_room(self, pool: str, newcomer: str) -> bool:
        crowd = self._crowds.get(pool, Crowd())
        if self._displace(crowd, newcomer):
            return True
        if not crowd.of(newcomer):
            self._ask_others(pool)
        return False

    def heed_others(self) -> None:
        """Make room where another worker has asked for it, by the next look."""
        slots = self._shared.slots
        if slots.total(WANTED) <= len(self._wanted):
            return
        for pool, crowd in list(self._crowds.items()):
            if pool not in self._wanted and slots.total(f"{WANTED}:{pool}"):
                self._displace(crowd, "")

    def _displace(self, crowd: Crowd, newcomer: str) -> bool:
        member = crowd.first_to_go(newcomer)
        if member is None:
            return False
        self._shared.refused["made_room"] += 1
        member.close()
        return True

    def _ask_others(self, pool: str) -> None:
        if self._shared.settings.workers == 1 or pool in self._wanted:
            return
        self._wanted.add(pool)
        for key in (WANTED, f"{WANTED}:{pool}"):
            self._shared.slots.enter(key, None)
        self._shared.loop.call_later(self._shared.settings.poll_s, self._stop_asking, pool)

    def _stop_asking(self, pool: str) -> None:
        self._wanted.discard(pool)
        for key in (WANTED, f"{WANTED}:{pool}"):
            self._shared.slots.leave(key)
