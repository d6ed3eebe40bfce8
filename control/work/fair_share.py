"""Owns whose turn it is at a worker's threads, and how many of them one organization may have."""

from collections import Counter
from collections.abc import Collection
from typing import Final

from control.work.operation import Operation
from control.work.queue import CELLS
from control.work.registry import Registry

_ROUND_MAX: Final = 200
"""As many are named in a query."""


def _sharer(operation: Operation) -> str:
    """As `queue.sharer` says of a row."""
    return str(operation.args.get("org_id") or (CELLS if "cell_id" in operation.args else ""))


class FairShare:
    """An organization takes a further thread while it has fewer than are free.

    So one alone has half of them, the next half of the rest, and whoever has none takes the next
    that is free. Cells, each of which may let a thread wait for long, never have more than half of
    all. What belongs to neither counts for nobody.

    While fewer than half of the threads are free, they take turns besides: whoever had a thread in
    this round waits until nobody else has work that is due. Else whoever gives their one thread
    back, with older work waiting, would always be the next to take it.
    """

    def __init__(self, registry: Registry, threads: int) -> None:
        self._deadlines = registry.deadlines
        self._of_ours = {
            kind: deadline_s
            for kind, deadline_s in registry.deadlines.items()
            if not registry.workflows[kind].asks_strangers
        }
        self._threads = threads
        self._had_a_turn: set[str] = set()

    def kinds(self, held: Collection[Operation]) -> dict[str, float]:
        """The kinds of which one more may run now, each with its deadline."""
        with_strangers = sum(each.kind not in self._of_ours for each in list(held))
        is_enough = with_strangers >= max(self._threads // 4, 1)
        return self._of_ours if is_enough else self._deadlines

    def others_turn(self, held: Collection[Operation]) -> list[str] | None:
        """Those who are to take no thread while others wait; None where nobody has to wait."""
        if (self._threads - len(held)) * 2 >= self._threads or not self._had_a_turn:
            return None
        return sorted({*self.used_up(held), *self._had_a_turn})

    def note(self, taken: Operation) -> None:
        """A thread was given; where its taker had one in this round, the next round begins."""
        sharer = _sharer(taken)
        if sharer in self._had_a_turn or len(self._had_a_turn) >= _ROUND_MAX:
            self._had_a_turn.clear()
        if sharer:
            self._had_a_turn.add(sharer)

    def used_up(self, held: Collection[Operation]) -> list[str]:
        """Those who are to take no further thread now."""
        free = self._threads - len(held)
        counts = Counter(map(_sharer, list(held)))
        of_cells = counts.pop(CELLS, 0)
        used_up = [sharer for sharer, count in counts.items() if sharer and count >= free]
        if of_cells >= max(self._threads // 2, 1):
            used_up.append(CELLS)
        return sorted(used_up)
