"""Owns how many threads of a worker one organization may have, so that others have theirs."""

from collections import Counter
from collections.abc import Collection

from control.work.operation import Operation
from control.work.queue import CELLS


def _sharer(operation: Operation) -> str:
    """As `queue.sharer` says of a row."""
    return str(operation.args.get("org_id") or (CELLS if "cell_id" in operation.args else ""))


class Shares:
    """An organization takes a further thread while it has fewer than are free.

    So one alone has half of them, the next half of the rest, and whoever has none takes the next
    that is free. Cells, each of which may let a thread wait for long, never have more than half of
    all. What belongs to neither counts for nobody.
    """

    def __init__(self, threads: int) -> None:
        self._threads = threads

    def used_up(self, held: Collection[Operation]) -> list[str]:
        """Those who are to take no further thread now."""
        free = self._threads - len(held)
        counts = Counter(map(_sharer, list(held)))
        of_cells = counts.pop(CELLS, 0)
        used_up = [sharer for sharer, count in counts.items() if sharer and count >= free]
        if of_cells >= max(self._threads // 2, 1):
            used_up.append(CELLS)
        return sorted(used_up)
