"""Who gives way where a pool is full: a connection of the network that has most of it.

So no small number of addresses keeps anybody else out of it; nor does a larger one, as chance
decides between equals, and nobody gives way before having had the time that a login takes.
"""

import random
from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import zip_longest
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from gateway.shared import Shared

WANTED = "wanted"
LOGIN = "login:"
# How often, and how many at a time, those who wait are asked whether they find a place.
DRAW_S = 0.02
DRAWN_IN_VAIN_MAX = 16
# What nobody can foresee: an attacker would come when it is their turn.
_CHANCE = random.SystemRandom()


class Member(Protocol):
    @property
    def gives_way(self) -> bool:
        """Whether it may be hung up on now for the sake of another."""

    def take_turn(self) -> bool:
        """Whether it waited and now has its place."""

    def close(self) -> None: ...


@dataclass(frozen=True, slots=True)
class _Since:
    at: float
    known: bool


class Crowd:
    """The connections that hold one pool, here in this worker, by whom they come from."""

    def __init__(self) -> None:
        self._of: dict[str, dict[Member, _Since]] = {}
        self.drawn_at = 0.0

    def __bool__(self) -> bool:
        return bool(self._of)

    def of(self, customer: str) -> int:
        return len(self._of.get(customer, ()))

    def join(self, customer: str, member: Member, at: float = 0.0, *, known: bool = False) -> int:
        """How many that customer has now."""
        own = self._of.setdefault(customer, {})
        own[member] = _Since(at, known)
        return len(own)

    def leave(self, customer: str, member: Member) -> None:
        own = self._of.get(customer, {})
        own.pop(member, None)
        if not own:
            self._of.pop(customer, None)

    def oldest(self, customer: str) -> Member:
        return next(iter(self._of[customer]))

    def first_to_go(self, newcomer: str = "", before: float = 0.0) -> Member | None:
        """The oldest of one who has most, where the newcomer has fewer; it was here `before`."""
        own = self.of(newcomer)
        for members in self._by_size():
            if len(members) <= own:
                return None
            for member, since in members.items():
                if since.at <= before and member.gives_way:
                    return member
        return None

    def stranger(self, known_max: int) -> Member | None:
        """Who gives way to one who is known; None where so many who are known are here."""
        every = [each for members in self._of.values() for each in members.items()]
        if sum(since.known for _, since in every) >= known_max:
            return None
        others = [(since.at, n) for n, (_, since) in enumerate(every) if not since.known]
        for _, number in sorted(others):
            if every[number][0].gives_way:
                return every[number][0]
        return None

    def in_turn(self) -> Iterator[Member]:
        """Those who are known first; of the rest, every network has the same chance."""
        of_each = list(self._of.values())
        _CHANCE.shuffle(of_each)
        for known in (True, False):
            queues = [[m for m, since in each.items() if since.known is known] for each in of_each]
            for one_of_each in zip_longest(*queues):
                yield from (member for member in one_of_each if member is not None)

    def _by_size(self) -> Iterator[dict[Member, _Since]]:
        """Largest first, equals by chance. Mostly only the first is asked for: it costs little."""
        of_each = list(self._of.values())
        largest = max(map(len, of_each), default=0)
        yield from _shuffled([each for each in of_each if len(each) == largest])
        _CHANCE.shuffle(of_each)
        yield from sorted((each for each in of_each if len(each) < largest), key=len, reverse=True)


def _shuffled(of_each: list[dict[Member, _Since]]) -> Iterator[dict[Member, _Since]]:
    start = _CHANCE.randrange(len(of_each)) if of_each else 0
    yield from of_each[start:]
    yield from of_each[:start]


class Networks:
    """The crowd of each network: of the one with most, whoever has most in it is the first to go.

    All of its members may be hung up on at any time.
    """

    def __init__(self) -> None:
        self._of: dict[str, Crowd] = {}
        self._sizes: Counter[str] = Counter()

    def __bool__(self) -> bool:
        return bool(self._of)

    def join(self, network: str, customer: str, member: Member) -> None:
        self._of.setdefault(network, Crowd()).join(customer, member)
        self._sizes[network] += 1

    def leave(self, network: str, customer: str, member: Member) -> None:
        self._of[network].leave(customer, member)
        self._sizes[network] -= 1
        if not self._of[network]:
            del self._of[network], self._sizes[network]

    def first_to_go(self) -> Member | None:
        largest = max(self._sizes.values(), default=0)
        equals = [network for network, size in self._sizes.items() if size == largest]
        return self._of[_CHANCE.choice(equals)].first_to_go() if equals else None


class Pools:
    """The crowds of a worker by pool. Other workers are asked for room where this one has none."""

    def __init__(self, shared: "Shared") -> None:
        self._shared = shared
        self._crowds: defaultdict[str, Crowd] = defaultdict(Crowd)
        self._wanted: set[str] = set()

    def join(self, pool: str, customer: str, member: Member, *, known: bool = False) -> None:
        self._crowds[pool].join(customer, member, self._shared.loop.time(), known=known)

    def leave(self, pool: str, customer: str, member: Member) -> None:
        crowd = self._crowds[pool]
        crowd.leave(customer, member)
        if not crowd:
            del self._crowds[pool]

    def is_empty(self, pool: str) -> bool:
        return pool not in self._crowds

    def make_room(self, pool: str, newcomer: str, known_max: int = 0) -> bool:
        """For one who is known, too, where so many of them are not there yet."""
        crowd = self._crowds.get(pool, Crowd())
        member = crowd.first_to_go(newcomer, self._before(pool))
        if self._displace(member or crowd.stranger(known_max)):
            return True
        if not crowd.of(newcomer):
            self._ask_others(pool)
        return False

    def draw(self, pool: str) -> None:
        """Give those who wait in the pool the places that are free by now, by chance."""
        crowd, now = self._crowds.get(pool), self._shared.loop.time()
        if crowd is None or now - crowd.drawn_at < DRAW_S:
            return
        crowd.drawn_at, in_vain = now, 0
        for member in list(crowd.in_turn()):
            in_vain += not member.take_turn()
            if in_vain >= DRAWN_IN_VAIN_MAX:
                return

    def heed_others(self) -> None:
        """Make room where another worker has asked for it, by the next look."""
        slots = self._shared.slots
        if slots.total(WANTED) <= len(self._wanted):
            return
        for pool, crowd in list(self._crowds.items()):
            if pool not in self._wanted and slots.total(f"{WANTED}:{pool}"):
                self._displace(crowd.first_to_go("", self._before(pool)))

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
