"""Engines of which a copy can build on an earlier one: it holds what has changed since that."""

from dataclasses import asdict, dataclass, field
from typing import Any, Protocol, Self, runtime_checkable

from cell.engines.driver import Snapshot
from cell.engines.packed_snapshots import ArchiveOutput
from cell.layout import Site
from cell.runtime.process import Process


@dataclass(frozen=True)
class CopyMark:
    """What must be known of a copy so that the next one can build on it.

    `data_id` is of the folder that was copied, and of no copy of it. The copy has all changes
    before `position` in the WAL of that timeline, and of each file in `blocks` so many blocks.
    """

    data_id: str
    system_id: str
    timeline: int
    position: int
    blocks: dict[str, int] = field(repr=False)

    def document(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def parse(cls, document: dict[str, Any]) -> Self:
        """Raises TypeError, ValueError or KeyError."""
        return cls(
            str(document["data_id"]),
            str(document["system_id"]),
            int(document["timeline"]),
            int(document["position"]),
            {str(name): int(count) for name, count in document["blocks"].items()},
        )


@dataclass(frozen=True)
class PackedCopy:
    """A copy that was packed; without `mark` none can build on it."""

    snapshot: Snapshot
    mark: CopyMark | None = None
    is_incremental: bool = False


@runtime_checkable
class PacksIncrements(Protocol):
    """The archive of an increment has, for each file of the former copy, what to patch it with."""

    async def pack_since(
        self, site: Site, process: Process | None, output: ArchiveOutput, former: CopyMark | None
    ) -> PackedCopy:
        """As `PacksSnapshots.pack`; what builds on `former` if that can be, else all of it."""
