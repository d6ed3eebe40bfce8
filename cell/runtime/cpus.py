"""Which CPUs each instance of a cell runs on: as few as its size needs, those least allocated.

A quota alone lets a busy instance stand on every CPU at the moment when a neighbour wants one.
"""

import math
from collections.abc import Iterable

# What is left of a sum of shares after they were taken away again is no load.
_NOTHING = 1e-9

# Of an engine that a backup is read in: nobody waits for it as they do for those of instances.
SCRATCH = "inst_verify_"
_SCRATCH_SHARE = 0.1

Place = frozenset[int] | None
"""None is all there are."""


def weight(name: str, vcpu: float, per_cpu: int) -> int:
    """What a group counts beside others, where processors are short."""
    share = _SCRATCH_SHARE if name.startswith(SCRATCH) else 1
    return round(vcpu * per_cpu * share)


class Cpus:
    """Keeps what is allocated of each CPU.

    For one thread at a time, and what it answers is to be done before it is asked again.
    """

    def __init__(self, available: Iterable[int]) -> None:
        """Of CPUs that are allocated alike, the first in this order is taken."""
        self._allocated = dict.fromkeys(available, 0.0)
        self._placed: dict[str, tuple[frozenset[int], float]] = {}

    def place(self, name: str, vcpu: float | None) -> dict[str, Place]:
        """Where `name` runs from now on, and whoever else is moved by that.

        Without a limit it may run anywhere, and nothing is allocated to it.
        """
        before = self._places()
        self._take(name)
        if vcpu is not None:
            self._give(name, vcpu)
        self._even_out()
        after = self._places()
        moved = {each for each, place in after.items() if before.get(each) != place}
        return {each: after.get(each) for each in {name, *moved}}

    def _places(self) -> dict[str, frozenset[int]]:
        return {name: place for name, (place, _) in self._placed.items()}

    def _give(self, name: str, vcpu: float) -> None:
        wanted = math.ceil(vcpu)
        # Who is on all of them weighs the same on each, and need not be counted.
        if wanted < len(self._allocated):
            emptiest = sorted(self._allocated, key=self._allocated.__getitem__)[:wanted]
            self._enter(name, frozenset(emptiest), vcpu)

    def _enter(self, name: str, place: frozenset[int], vcpu: float) -> None:
        self._placed[name] = (place, vcpu)
        for cpu in place:
            self._allocated[cpu] += vcpu / len(place)

    def _take(self, name: str) -> None:
        place, vcpu = self._placed.pop(name, (frozenset(), 0.0))
        for cpu in place:
            self._allocated[cpu] -= vcpu / len(place)

    def _even_out(self) -> None:
        """Moves who stands on one of the fullest CPUs, for as long as that frees it of a peak."""
        while self._moves_one():
            pass

    def _moves_one(self) -> bool:
        peak = max(self._allocated.values()) - _NOTHING
        fullest = {cpu for cpu, allocated in self._allocated.items() if allocated >= peak}
        for name, (place, vcpu) in list(self._placed.items()):
            if place & fullest:
                self._take(name)
                self._give(name, vcpu)
                if max(self._allocated[cpu] for cpu in self._placed[name][0]) < peak:
                    return True
                self._take(name)
                self._enter(name, place, vcpu)
        return False
