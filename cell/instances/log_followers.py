"""Who follows the logs of instances, and when that is over: a one-time URL is no standing right."""

import time
from dataclasses import dataclass, field

from cell.instances.hosted import HostedInstance
from cell.instances.state import GONE
from gateway import addresses
from specserver.turns import Together, Turns

# Then another URL has to be asked for, with a key or session that is good.
FOLLOWED_S = 3600.0


@dataclass(eq=False)
class LogFollower:
    """Over where the instance is gone, or its allow-list no longer has the address it had."""

    instance: HostedInstance
    address: str
    share: Together
    holder: str = ""
    begun_at: float = field(default_factory=time.monotonic)
    ended: bool = False

    def __post_init__(self) -> None:
        self._was_admitted = self._is_admitted()

    def is_over(self) -> bool:
        return (
            self.ended
            or time.monotonic() - self.begun_at >= FOLLOWED_S
            or self.instance.record.desired in GONE
            or (self._was_admitted and not self._is_admitted())
        )

    def _is_admitted(self) -> bool:
        networks = addresses.parse_networks(self.instance.record.spec.allow_cidrs)
        return addresses.admits(networks, self.address)


class LogFollowers:
    """Oldest first. Of each tenant, and of each person, as many as `of_one`."""

    def __init__(self, total: int, of_one: int, reserved: int) -> None:
        self._turns = Turns(total, of_one, reserved=reserved)
        self._of_one = of_one
        self._all: dict[LogFollower, None] = {}

    def has_most(self, follower: LogFollower) -> bool:
        return any(len(own) >= self._of_one for own in self._own(follower))

    def end_oldest(self, follower: LogFollower) -> None:
        """So that whoever has a key can follow, whatever one that was revoked has begun."""
        for own in self._own(follower):
            if len(own) >= self._of_one:
                self._end(own[0])

    def end_all(self, instance_id: str) -> None:
        for each in list(self._all):
            if each.instance.instance_id == instance_id:
                self._end(each)

    def end_of(self, instance_id: str, holder: str) -> None:
        for each in list(self._all):
            if (each.instance.instance_id, each.holder) == (instance_id, holder):
                self._end(each)

    def holders(self) -> set[tuple[str, str]]:
        """Each instance, and who follows its log."""
        return {(each.instance.instance_id, each.holder) for each in self._all if each.holder}

    def try_join(self, follower: LogFollower) -> bool:
        if not self._turns.try_enter(follower.share):
            return False
        self._all[follower] = None
        return True

    def leave(self, follower: LogFollower) -> None:
        if follower in self._all:
            del self._all[follower]
            self._turns.leave(follower.share)

    def _own(self, follower: LogFollower) -> list[list[LogFollower]]:
        """Those of the same tenant, and those of the same person."""
        return [[each for each in self._all if name in each.share] for name in follower.share]

    def _end(self, follower: LogFollower) -> None:
        follower.ended = True
        self.leave(follower)
