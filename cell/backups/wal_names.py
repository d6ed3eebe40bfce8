"""Names of WAL segments: as the server writes them, and as objects in the store."""

import re
from dataclasses import dataclass
from typing import Final, Self

SEGMENT_BYTES: Final = 16 * 2**20
"""As every cluster of a cell has it."""
PARTIAL: Final = ".partial"
HISTORY: Final = ".history"
FOLDER: Final = "wal"
"""Of an instance in the store, beside its backups."""
_PER_LOG: Final = 2**32 // SEGMENT_BYTES
_SEGMENT: Final = re.compile(r"([0-9A-F]{8})([0-9A-F]{8})([0-9A-F]{8})")
_CHAIN_ID: Final = re.compile(r"wal_[0-9A-Za-z]+")
_HISTORY: Final = re.compile(r"[0-9A-F]{8}\.history")


@dataclass(frozen=True, order=True)
class Segment:
    """16 MiB of the WAL: the `number`th, of a timeline."""

    timeline: int
    number: int

    def __str__(self) -> str:
        high, low = divmod(self.number, _PER_LOG)
        return f"{self.timeline:08X}{high:08X}{low:08X}"

    @property
    def partial(self) -> str:
        """While it is not full."""
        return f"{self}{PARTIAL}"

    @property
    def begins(self) -> int:
        """The position of its first byte in the WAL."""
        return self.number * SEGMENT_BYTES

    @property
    def ends(self) -> int:
        return self.begins + SEGMENT_BYTES

    @classmethod
    def parse(cls, name: str) -> Self | None:
        """None where it is no name of a segment, full or partial."""
        found = _SEGMENT.fullmatch(name.removesuffix(PARTIAL))
        if found is None:
            return None
        timeline, high, low = (int(each, 16) for each in found.groups())
        return cls(timeline, high * _PER_LOG + low) if low < _PER_LOG else None


def is_history(name: str) -> bool:
    """Of a timeline."""
    return _HISTORY.fullmatch(name) is not None


def is_chain_id(name: str) -> bool:
    return _CHAIN_ID.fullmatch(name) is not None


def of_chain(instance_id: str, chain_id: str) -> str:
    """Where the objects of a chain lie."""
    return f"{instance_id}/{FOLDER}/{chain_id}/"
