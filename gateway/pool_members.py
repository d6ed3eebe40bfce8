"""Which connection is evicted where a pool is full: one of the network that has most of it.

So no small number of addresses keeps anybody else out of it; nor does a larger one, as chance
decides between equals, and nobody is evicted before having had the time that a login takes.
"""

import random
import secrets
import time
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import zip_longest
from math import inf
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from gateway.shared import Shared

Levels = tuple[str, ...]
WANTED = "wanted"
LOGIN = "login:"
# How often, and how many at a time, those who wait are asked whether they find a place.
DRAW_S = 0.02
DRAWN_IN_VAIN_MAX = 16
# Of the worker's time, for all pools together; one in which few wait takes little of it.
DRAWN_PART = 0.1
# Nobody can foresee it, as nobody sees what it gave: an attacker would come when it is their turn.
_CHANCE = random.Random(secrets.randbits(256))  # noqa: S311 - asking the system takes most of a draw


class Member(Protocol):
    @property
    def evictable(self) -> bool:
        """Whether it may be hung up on now for the sake of another."""

    def take_turn(self) -> bool:
        """Whether it waited and now has its place."""

    def close(self) -> None: ...


@dataclass(frozen=True, slots=True)
class _Since:
    at: float
    known: bool


class PoolMembers:
    """The connections that hold one pool, here in this worker, by whom they come from.

    That is told by `gateway.addresses.levels`: those of a network are within those of a
    wider one. Without levels below, they are of one address.
    """

    def __init__(self) -> None:
        self.size = 0
        self.draws_at = 0.0
        self._below: dict[str, PoolMembers] = {}
        self._members: dict[Member, _Since] = {}

    def __bool__(self) -> bool:
        return self.size > 0

    def of(self, levels: Levels) -> int:
        """How many there are within."""
        if not levels:
            return self.size
        below = self._below.get(levels[0])
        return below.of(levels[1:]) if below else 0

    def join(self, levels: Levels, member: Member, at: float = 0.0, *, known: bool = False) -> int:
        """How many that address has now."""
        self.size += 1
        if levels:
            below = self._below.setdefault(levels[0], PoolMembers())
            return below.join(levels[1:], member, at, known=known)
        self._members[member] = _Since(at, known)
        return self.size

    def leave(self, levels: Levels, member: Member) -> None:
        self.size -= 1
        if not levels:
            del self._members[member]
            return
        self._below[levels[0]].leave(levels[1:], member)
        if not self._below[levels[0]]:
            del self._below[levels[0]]

    def oldest(self, levels: Levels) -> Member:
        return self._below[levels[0]].oldest(levels[1:]) if levels else next(iter(self._members))

    def first_to_go(self, newcomer: Levels | None = None, before: float = inf) -> Member | None:
        """The oldest of who has most, at each level, where the newcomer has fewer.

        It was here `before`, and is evictable.
        """
        for member, since in self.in_order(newcomer):
            if since.at <= before and member.evictable:
                return member
        return None

    def stranger(self, known_max: int) -> Member | None:
        """Who is evicted for one who is known; None where so many who are known are here."""
        if not known_max:
            return None
        every = list(self.in_order(None))
        if sum(since.known for _, since in every) >= known_max:
            return None
        others = [(since.at, n) for n, (_, since) in enumerate(every) if not since.known]
        for _, number in sorted(others):
            if every[number][0].evictable:
                return every[number][0]
        return None

    def in_turn(self) -> Iterator[Member]:
        """Those who are known first; of the rest, every network has the same chance, and in it."""
        yield from self.by_chance(known=True)
        yield from self.by_chance(known=False)

    def by_chance(self, *, known: bool) -> Iterator[Member]:
        """Those who are known, or those who are not."""
        yield from (member for member, since in self._members.items() if since.known is known)
        below = list(self._below.values())
        _CHANCE.shuffle(below)
        for one_of_each in zip_longest(*(each.by_chance(known=known) for each in below)):
            yield from (member for member in one_of_each if member is not None)

    def in_order(self, newcomer: Levels | None) -> Iterator[tuple[Member, _Since]]:
        """Of who has most first, and of nobody that has no more than the newcomer, if there is one.

        Where the newcomer's own network has most, this is asked again within it.
        """
        if newcomer != ():
            yield from self._members.items()
        own = self.of(newcomer[:1]) if newcomer else 0
        for name, each in self._by_size():
            if newcomer and name == newcomer[0]:
                yield from each.in_order(newcomer[1:])
            elif each.size > own:
                yield from each.in_order(None)

    def _by_size(self) -> Iterator[tuple[str, "PoolMembers"]]:
        """Largest first, equals by chance. Mostly only the first is asked for: it costs little."""
        below = list(self._below.items())
        largest = max((each.size for _, each in below), default=0)
        yield from _shuffled([each for each in below if each[1].size == largest])
        _CHANCE.shuffle(below)
        smaller = [each for each in below if each[1].size < largest]
        yield from sorted(smaller, key=lambda each: each[1].size, reverse=True)


def _shuffled(equals: list[tuple[str, PoolMembers]]) -> Iterator[tuple[str, PoolMembers]]:
    start = _CHANCE.randrange(len(equals)) if equals else 0
    yield from equals[start:]
    yield from equals[:start]


class FullPools:
    """Those of each pool of a worker. Other workers are asked for room where this one has none."""

    def __init__(self, shared: "Shared") -> None:
        self._shared = shared
        self._pools: defaultdict[str, PoolMembers] = defaultdict(PoolMembers)
        self._wanted: set[str] = set()

    def join(self, pool: str, levels: Levels, member: Member, *, known: bool = False) -> None:
        self._pools[pool].join(levels, member, self._shared.loop.time(), known=known)

    def leave(self, pool: str, levels: Levels, member: Member) -> None:
        members = self._pools[pool]
        members.leave(levels, member)
        if not members:
            del self._pools[pool]

    def is_empty(self, pool: str) -> bool:
        return pool not in self._pools

    def make_room(self, pool: str, newcomer: Levels, known_max: int = 0) -> bool:
        """For one who is known, too, where so many of them are not there yet."""
        members = self._pools.get(pool, PoolMembers())
        member = members.first_to_go(newcomer, self._before(pool))
        if self._displace(member or members.stranger(known_max)):
            return True
        if not members.of(newcomer[:1]):
            self._ask_others(pool)
        return False

    def draw(self, pool: str) -> None:
        """Give those who wait in the pool the places that are free by now, by chance."""
        members, now = self._pools.get(pool), time.monotonic()
        if members is None or now < members.draws_at:
            return
        in_vain = 0
        for member in list(members.in_turn()):
            in_vain += not member.take_turn()
            if in_vain >= DRAWN_IN_VAIN_MAX:
                break
        took = time.monotonic() - now
        members.draws_at = now + max(DRAW_S, took * len(self._pools) / DRAWN_PART)

    def heed_others(self) -> None:
        """Make room where another worker has asked for it, by the next look."""
        slots = self._shared.slots
        if slots.total(WANTED) <= len(self._wanted):
            return
        for pool, members in list(self._pools.items()):
            if pool not in self._wanted and slots.total(f"{WANTED}:{pool}"):
                self._displace(members.first_to_go(None, self._before(pool)))

    def _before(self, pool: str) -> float:
        """Who logs in keeps the place for the time that takes, whoever else would have it."""
        keep_s = self._shared.settings.login_keep_s if pool.startswith(LOGIN) else 0.0
        return self._shared.loop.time() - keep_s

    def _displace(self, member: Member | None) -> bool:
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
