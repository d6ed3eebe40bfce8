"""Access that lasts, beyond the request of its one-time URL: open consoles and followed logs.

The control plane asks who has any, and tells whose right has ended; see decision 0028.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping
from typing import Protocol

Access = dict[str, list[dict[str, str]]]


class Lasting(Protocol):
    """One kind of it. A holder is the key or session by whose right it was begun."""

    def holders(self) -> set[tuple[str, str]]:
        """Each instance, and who has it there."""

    def end_of(self, instance_id: str, holder: str) -> None: ...


class LastingAccess:
    """Of every kind, by the name that the cell's document has for it."""

    def __init__(self, kinds: Mapping[str, Lasting]) -> None:
        self._kinds = kinds

    def held(self) -> Access:
        """By instance."""
        found: Access = defaultdict(list)
        for kind, lasting in self._kinds.items():
            for instance_id, holder in lasting.holders():
                found[instance_id].append({"holder": holder, "kind": kind})
        return found

    def end(self, instance_id: str, holders: Iterable[str]) -> None:
        for holder in holders:
            for lasting in self._kinds.values():
                lasting.end_of(instance_id, holder)
