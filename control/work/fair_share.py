"""Owns whose turn it is at a worker's threads, and how many of them one organization may have."""

from collections import Counter
from collections.abc import Collection
from typing import Final

from control.work.operation import Operation
from control.work.queue import CELLS, SHARERS, PassedOver
from control.work.registry import Registry

_ROUND_MAX: Final = 200
"""As many are named in a query."""


class FairShare:
    """An organization takes a further thread while it has fewer than are free.

    So one alone has half of them, the next half of the rest, and whoever has none takes the next
    that is free. Cells, each of which may let a thread wait for long, never have more than half of
    all. What belongs to neither counts for nobody.

    While fewer than half of the threads are free, they take turns besides: whoever had a thread in
    this round waits until nobody else has work that is due. Else whoever gives their one thread
    back, with older work waiting, would always be the next to take it.

    What asks strangers, who answer as late as they like, has a quarter of the threads. They are
    shared by the same rule, and always by turns: most of all threads may be free meanwhile.
    """

    def __init__(self, registry: Registry, threads: int) -> None:
        self._deadlines = registry.deadlines
        asking = {kind for kind, each in registry.workflows.items() if each.asks_strangers}
        self._asking = sorted(asking)
        self._of_ours = {
            kind: deadline_s
            for kind, deadline_s in registry.deadlines.items()
            if kind not in asking
        }
        self._threads = _Slots(threads, turns_from=threads // 2 + 1)
        self._askers = _Slots(max(threads // 4, 1), turns_from=0)

    def kinds(self, held: Collection[Operation]) -> dict[str, float]:
        """The kinds of which one more may run now, each with its deadline."""
        is_enough = len(self._that_ask(held)) >= self._askers.number
        return self._of_ours if is_enough else self._deadlines

    def turns(self, held: Collection[Operation]) -> list[PassedOver]:
        """Who is passed over at the first try; and, where there is nothing for others, then."""
        last = self.used_up(held)
        first = PassedOver(
            self._threads.others_turn(held),
            self._asking,
            self._askers.others_turn(self._that_ask(held)),
        )
        return [last] if first == last else [first, last]

    def used_up(self, held: Collection[Operation]) -> PassedOver:
        """Those who are to take no further thread now."""
        there = self._askers.used_up(self._that_ask(held))
        return PassedOver(self._threads.used_up(held), self._asking, there)

    def note(self, taken: Operation) -> None:
        """A thread was given."""
        self._threads.note(taken)
        if taken.kind in self._asking:
            self._askers.note(taken)

    def note_none(self, held: Collection[Operation]) -> None:
        """Nothing is due that may run."""
        if not self._that_ask(held):
            self._askers.begin_round()

    def _that_ask(self, held: Collection[Operation]) -> list[Operation]:
        return [each for each in list(held) if each.kind in self._asking]


class _Slots:
    """That are shared; in turns while `turns_from` of them, or more, are taken."""

    def __init__(self, number: int, *, turns_from: int) -> None:
        self.number = number
        self._turns_from = turns_from
        self._had_a_turn: set[str] = set()

    def used_up(self, held: Collection[Operation]) -> list[str]:
        """Those who have as many as are free."""
        free = self.number - len(held)
        counts = Counter(map(_sharer, list(held)))
        of_cells = counts.pop(CELLS, 0)
        used_up = [sharer for sharer, count in counts.items() if sharer and count >= free]
        if of_cells >= max(self.number // 2, 1):
            used_up.append(CELLS)
        return sorted(used_up)

    def others_turn(self, held: Collection[Operation]) -> list[str]:
        """Those who are to take none while others wait; where none has to, as `used_up`."""
        used_up = self.used_up(held)
        if len(held) < self._turns_from:
            return used_up
        return sorted({*used_up, *self._had_a_turn})

    def note(self, taken: Operation) -> None:
        """Where its taker had one in this round, the next round begins."""
        sharer = _sharer(taken)
        if sharer in self._had_a_turn or len(self._had_a_turn) >= _ROUND_MAX:
            self._had_a_turn.clear()
        if sharer:
            self._had_a_turn.add(sharer)

    def begin_round(self) -> None:
        self._had_a_turn.clear()


def _sharer(operation: Operation) -> str:
    """As `queue.sharer` says of a row."""
    whose = filter(None, map(operation.args.get, SHARERS))
    return str(next(whose, CELLS if "cell_id" in operation.args else ""))
