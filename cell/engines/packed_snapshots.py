"""Engines whose snapshot is one archive."""

from typing import Final, Protocol, runtime_checkable

from cell.engines.driver import Driver, Login, Snapshot
from cell.layout import Site
from cell.runtime.process import Process
from cell.runtime.side_digest import PENDING_MAX

BLOCKS_KEPT: Final = PENDING_MAX


class ArchiveOutput(Protocol):
    """Where an archive is written to, in turn."""

    def write(self, content: bytes | memoryview, /) -> int:
        """It is read until `BLOCKS_KEPT` more are written, and must not be changed before."""

    def finish(self) -> str:
        """All is written. Answers the SHA-256 of it."""


@runtime_checkable
class PacksSnapshots(Protocol):
    """`restore` also takes what was in the archive from a folder of its name without the suffix."""

    snapshot_archive: str

    async def pack(
        self, site: Site, process: Process | None, login: Login, output: ArchiveOutput
    ) -> Snapshot:
        """As `snapshot`, into an archive in which that folder is, with what it would hold."""


def archive_of(driver: Driver) -> str | None:
    """What a backup is unpacked from to the files that take their place, without a second copy.

    Of an earlier version: since then, backups are made by `pack`.
    """
    return driver.snapshot_archive if isinstance(driver, PacksSnapshots) else None
