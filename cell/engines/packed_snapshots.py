"""Engines whose snapshot is one archive."""

from typing import Protocol, runtime_checkable

from cell.engines.driver import Driver


@runtime_checkable
class PacksSnapshots(Protocol):
    """`restore` also takes what was in the archive from a folder of its name without the suffix."""

    snapshot_archive: str


def archive_of(driver: Driver) -> str | None:
    """What a backup is unpacked from to the files that take their place, without a second copy."""
    return driver.snapshot_archive if isinstance(driver, PacksSnapshots) else None
