"""Who follows the logs of instances, and when that is over: a one-time URL is no standing right."""

import time
from collections import defaultdict
from dataclasses import dataclass, field

from cell import addresses
from cell.residents import Resident
from specserver.turns import Turns

# Then another URL has to be asked for, with a key or session that is good.
FOLLOWED_S = 3600.0
GONE = ("stopped", "erased")


@dataclass(eq=False)
class Follower:
    """Over where the instance is gone, or its allow-list no longer has the address it had."""

    resident: Resident
    address: str
    holder: str = ""
    begun_at: float = field(default_factory=time.monotonic)
    ended: bool = False

    def __post_init__(self) -> None:
        self._was_admitted = self._is_admitted()

    @property
    def tenant(self) -> str:
        return self.resident.record.tenant

    def is_over(self) -> bool:
        return (
            self.ended
            or time.monotonic() - self.begun_at >= FOLLOWED_S
            or self.resident.record.desired in GONE
            or (self._was_admitted and not self._is_admitted())
        )

    def _is_admitted(self) -> bool:
        networks = addresses.parse_networks(self.resident.record.spec.allow_cidrs)
        return addresses.admits(networks, self.address)


class Followers:
    """Of each tenant, oldest first."""

    def __init__(self, places: int, of_one: int) -> None:
        self._places = Turns(places, of_one)
        self._of_one = of_one
        self._of: defaultdict[str, list[Follower]] = defaultdict(list)

    def is_full(self, tenant: str) -> bool:
        return len(self._of.get(tenant, ())) >= self._of_one

    def end_oldest(self, tenant: str) -> None:
        """So that whoever has a key can follow, whatever one that was revoked has begun."""
        self._end(self._of[tenant][0])

    def end_all(self, instance_id: str) -> None:
        for each in self._all():
            if each.resident.instance_id == instance_id:
                self._end(each)

    def end_of(self, instance_id: str, holder: str) -> None:
        for each in self._all():
            if (each.resident.instance_id, each.holder) == (instance_id, holder):
                self._end(each)

    def holders(self) -> set[tuple[str, str]]:
        """Each instance, and who follows its log."""
        return {(each.resident.instance_id, each.holder) for each in self._all() if each.holder}

    def _all(self) -> list[Follower]:
        return [each for own in self._of.values() for each in own]

    def try_join(self, follower: Follower) -> bool:
        if not self._places.try_enter(follower.tenant):
            return False
        self._of[follower.tenant].append(follower)
        return True

    def leave(self, follower: Follower) -> None:
        own = self._of.get(follower.tenant, [])
        if follower in own:
            own.remove(follower)
            self._places.leave(follower.tenant)
        if not own:
            self._of.pop(follower.tenant, None)

    def _end(self, follower: Follower) -> None:
        follower.ended = True
        self.leave(follower)
