"""Owns how many threads of a worker one organization may have, so that others have theirs."""

from collections import Counter
from collections.abc import Collection

from control.work.operation import Operation


class Shares:
    """An organization takes a further thread while it has fewer than are free.

    So one alone has half of them, the next half of the rest, and whoever has none takes the next
    that is free. What belongs to no organization counts for nobody.
    """

    def __init__(self, threads: int) -> None:
        self._threads = threads

    def used_up(self, held: Collection[Operation]) -> list[str]:
        """The organizations that are to take no further thread now."""
        free = self._threads - len(held)
        counts = Counter(operation.args.get("org_id") for operation in list(held))
        return sorted(org_id for org_id, count in counts.items() if org_id and count >= free)
