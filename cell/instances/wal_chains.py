"""What the cell knows of archived WAL: chains without a gap, and the backups they continue.

A chain is the WAL of one server's data from one moment on. It ends where other data takes the place
of an instance's data, or where something of it was lost; what comes later is of another chain.
"""

import math
import time
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from ulid import ULID

from cell.backups.manifest import WalStart
from cell.backups.wal_names import SEGMENT_BYTES, Segment
from cell.database import Database
from cell.engines.log_pieces import TIMELINE
from cell.engines.wal_sources import WalLook

_COLUMNS: Final = (
    "chain_id, instance_id, timeline, system_id, first_segment, next_segment, began_at, newest_at,"
    " newest_position, is_settled, ended_at, gap, partial_bytes, log_cursor"
)


@dataclass
class WalChain:
    """`next_segment` is the first that is not archived whole. Times are unix seconds.

    All that was committed by `newest_at` is archived, before `newest_position`. A chain
    `is_settled` where the engine was ended in order since and everything is archived. `gap` says
    what was lost, where it ended by that. Of the segment that fills, `partial_bytes` are archived.
    Of an engine with log files, segments are pieces of these, and `log_cursor` says where in them
    the next one begins.
    """

    chain_id: str
    instance_id: str
    timeline: int
    system_id: str
    first_segment: int
    next_segment: int
    began_at: float
    newest_at: float | None
    newest_position: int
    is_settled: bool = False
    ended_at: float | None = None
    gap: str | None = None
    partial_bytes: int = 0
    log_cursor: str = ""

    @property
    def is_of_files(self) -> bool:
        return self.timeline == TIMELINE

    def rounded(self, at: float) -> float:
        """Log files note whole seconds: to which moment one that was asked for can be recovered."""
        return math.floor(at) if self.is_of_files else at

    @property
    def slot(self) -> str:
        """What its server holds WAL back for."""
        return slot_of(self.chain_id)

    def segment(self, number: int) -> Segment:
        return Segment(self.timeline, number)


@dataclass(frozen=True)
class WalBase:
    """A backup that the WAL of a chain continues, from its first segment on."""

    backup_id: str
    chain_id: str
    first_segment: int
    consistent_at: float


def new_chain_id() -> str:
    return f"wal_{ULID()}"


def slot_of(chain_id: str) -> str:
    return f"menagerie_{chain_id.lower()}"


def is_at_rest(chain: WalChain) -> bool:
    """Nothing has changed since its engine was ended in order, and everything is archived."""
    return chain.is_settled and chain.ended_at is None


class WalChains:
    """In the cell's database."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def begin(
        self, instance_id: str, chain_id: str, look: WalLook, log_cursor: str = ""
    ) -> WalChain:
        """At the segment that the server holds back from."""
        first = (look.written if look.restart is None else look.restart) // SEGMENT_BYTES
        made = WalChain(
            *(chain_id, instance_id, look.timeline, look.system_id, first, first, time.time()),
            *(None, look.written),
            log_cursor=log_cursor,
        )
        self.save(made)
        return made

    def save(self, chain: WalChain) -> None:
        self._database.write(
            f"INSERT OR REPLACE INTO wal_chains ({_COLUMNS})"  # noqa: S608 - our own words
            " VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
            *(chain.chain_id, chain.instance_id, chain.timeline, chain.system_id),
            *(chain.first_segment, chain.next_segment, chain.began_at, chain.newest_at),
            *(chain.newest_position, int(chain.is_settled), chain.ended_at, chain.gap),
            *(chain.partial_bytes, chain.log_cursor),
        )

    def advance(self, chain: WalChain, at: float, position: int) -> None:
        """All that was committed by `at` is archived now, and lies before `position`.

        Without waiting for the disk: what a power cut takes of that is seen again.
        """
        former = chain.newest_position // SEGMENT_BYTES
        chain.newest_at, chain.newest_position = at, max(position, chain.newest_position)
        self._database.note(
            "UPDATE wal_chains SET newest_at = ?, newest_position = ? WHERE chain_id = ?",
            *(chain.newest_at, chain.newest_position, chain.chain_id),
        )
        if chain.newest_position // SEGMENT_BYTES != former:
            # What was committed until then needs no later segment.
            self._database.note(
                "INSERT OR IGNORE INTO wal_marks VALUES (?, ?, ?)",
                *(chain.chain_id, chain.newest_position // SEGMENT_BYTES, at),
            )

    def fill(self, chain: WalChain, partial_bytes: int) -> None:
        """So much of its segment that is not whole is in the store, or more."""
        chain.partial_bytes = partial_bytes
        self._database.note(
            "UPDATE wal_chains SET partial_bytes = ? WHERE chain_id = ?",
            *(partial_bytes, chain.chain_id),
        )

    def end(self, chain: WalChain, gap: str | None, *, newest_at: float | None = None) -> None:
        if newest_at is not None:
            chain.newest_at = newest_at
        chain.ended_at, chain.gap = time.time(), gap
        self.save(chain)

    def of(self, instance_id: str) -> list[WalChain]:
        """Oldest first."""
        rows = self._database.rows(
            f"SELECT {_COLUMNS} FROM wal_chains WHERE instance_id = ?"  # noqa: S608 - our own words
            " ORDER BY began_at, chain_id",
            instance_id,
        )
        return [WalChain(*row) for row in rows]

    def open(self, instance_id: str) -> WalChain | None:
        """The one that goes on."""
        return next((each for each in self.of(instance_id) if each.ended_at is None), None)

    def last_segment(self, chain: WalChain, at: float) -> int:
        """That nothing committed by `at`, a moment of the chain, lies behind."""
        row = self._database.row(
            "SELECT min(segment) FROM wal_marks WHERE chain_id = ? AND at >= ?", chain.chain_id, at
        )
        newest = chain.newest_position // SEGMENT_BYTES
        return newest if row is None or row[0] is None else min(int(row[0]), newest)

    def first_needed(self, chain: WalChain) -> int:
        """The segment from which on its WAL continues a backup, or may continue the next one."""
        row = self._database.row(
            "SELECT min(first_segment) FROM wal_bases WHERE chain_id = ?", chain.chain_id
        )
        newest = min(chain.newest_position // SEGMENT_BYTES, chain.next_segment)
        return newest if row is None or row[0] is None else min(int(row[0]), newest)

    def moment_before(self, chain: WalChain, segment: int) -> float:
        """The last one known at which all that was committed lay before the segment."""
        row = self._database.row(
            "SELECT max(at) FROM wal_marks WHERE chain_id = ? AND segment < ?",
            *(chain.chain_id, segment),
        )
        return chain.began_at if row is None or row[0] is None else float(row[0])

    def add_base(self, chain: WalChain, backup_id: str, start: WalStart) -> None:
        first = Segment.parse(start.first)
        assert first is not None
        self._database.write(
            "INSERT OR REPLACE INTO wal_bases VALUES (?, ?, ?, ?, ?)",
            *(backup_id, chain.chain_id, chain.instance_id, first.number, start.consistent_at),
        )

    def bases(self, instance_id: str) -> list[WalBase]:
        """Oldest first."""
        rows = self._database.rows(
            "SELECT backup_id, chain_id, first_segment, consistent_at FROM wal_bases"
            " WHERE instance_id = ? ORDER BY consistent_at",
            instance_id,
        )
        return [WalBase(*row) for row in rows]

    def drop_bases(self, backup_ids: Iterable[str]) -> None:
        for each in backup_ids:
            self._database.write("DELETE FROM wal_bases WHERE backup_id = ?", each)

    def trim(self, chain: WalChain, first_segment: int) -> None:
        """What is before is archived no longer."""
        chain.first_segment = first_segment
        self.save(chain)
        self._database.write(
            "DELETE FROM wal_marks WHERE chain_id = ? AND segment < ?",
            *(chain.chain_id, first_segment),
        )

    def forget(self, chain: WalChain) -> None:
        for table in ("wal_marks", "wal_bases", "wal_chains"):
            self._database.write(f"DELETE FROM {table} WHERE chain_id = ?", chain.chain_id)  # noqa: S608 - our own words

    def erase(self, instance_id: str) -> None:
        for chain in self.of(instance_id):
            self.forget(chain)
