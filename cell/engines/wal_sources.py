"""What drivers can do so that all changes are archived: WAL that is received, or log files."""

from dataclasses import dataclass
from pathlib import Path
from typing import Protocol, runtime_checkable

from cell.layout import Site
from cell.runtime.attendants import Attendant
from cell.runtime.engine_files import EnginePath
from cell.specification import Spec


@dataclass(frozen=True)
class WalNeed:
    """What a copy that was made while the engine ran needs of its WAL to be consistent.

    `first` is the name of the segment it begins in, None where it needs what was not archived when
    it began; `consistent_at`, in unix seconds, when it ended: from it, later moments can be
    recovered, and no earlier ones.
    """

    first: str | None
    consistent_at: float


@dataclass(frozen=True)
class WalLook:
    """How far a server and what receives its WAL are; positions are numbers of bytes.

    Everything that was committed by `at` (unix seconds) is before `written`. Before `received` all
    is in the spool. `slot` is the state of what holds the WAL back: reserved, lost, or None if
    missing; it does so from `restart` on, `held_bytes` in all.
    """

    at: float
    written: int
    received: int | None
    timeline: int
    system_id: str
    slot: str | None
    restart: int | None
    held_bytes: int


class WalSource(Protocol):
    """Gives the WAL of an engine that runs. Raises EngineError where it does not answer."""

    async def open(self, site: Site, slot: str) -> WalLook:
        """From now on all WAL is held back for `slot`, and for no other slot of ours."""

    async def look(self, site: Site, slot: str) -> WalLook: ...

    async def close(self, site: Site) -> None:
        """Nothing is held back any more."""

    async def receive(self, site: Site, slot: str, spool: Path) -> Attendant:
        """Writes all that comes into files in `spool`, until it is ended or the engine ends."""

    def left_at(self, site: Site) -> int | None:
        """Of an engine that was ended in order: the position of the last it wrote. Else None."""


@dataclass(frozen=True, order=True)
class LogPlace:
    """A place in the log files of an engine, which are numbered in the order of their writing."""

    file: int
    offset: int


@runtime_checkable
class LogSource(Protocol):
    """An engine that writes all changes to log files, which can be read beside it.

    What it has acknowledged is in them.
    """

    async def open(self, site: Site) -> LogPlace:
        """The place from which on they have all that a recovery needs. Raises EngineError."""

    def files(self, site: Site) -> dict[int, EnginePath]:
        """Those there are, by number; only the last one grows. Blocks."""

    async def release(self, site: Site, before: int) -> None:
        """Those of lower numbers are archived. EngineError where the engine does not answer."""

    async def expire(self, site: Site, after_s: int) -> None:
        """Files may go so long after they were written, archived or not, until its next start."""


@dataclass(frozen=True)
class RecoveryTarget:
    """The moment `at` (unix seconds), by which what is committed counts; it may take `within_s`."""

    spec: Spec
    at: float
    within_s: float


@runtime_checkable
class ArchivesWal(Protocol):
    """A driver whose engine can be recovered to any moment from a copy and all changes since."""

    @property
    def wal(self) -> WalSource | LogSource: ...

    async def recover(self, site: Site, source: Path, target: RecoveryTarget) -> None:
        """As `restore`; with what was archived, in the folder `wal` of `source`, up to `target`."""
