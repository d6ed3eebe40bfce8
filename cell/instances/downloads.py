"""Backups of an instance, opened with its key and sent to whoever may have its data."""

from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager

from cell.backups.manifest import BackupName, Manifest
from cell.backups.repository import Repository
from cell.backups.sealed_objects import DamagedError
from cell.instances.backups import told
from cell.instances.data_streams import DataStream
from cell.instances.hosted import HostedInstance
from cell.settings import CellSettings
from specserver import Conflict

INCREMENTAL = (
    "an incremental backup has only what has changed since the one that it builds on: download a"
    " full one, such as a manual backup, or restore it into a new instance"
)


class Downloads:
    def __init__(self, settings: CellSettings, repository: Repository) -> None:
        self._settings = settings
        self._repository = repository

    async def find(self, instance: HostedInstance, backup_id: str) -> Manifest:
        """Conflict where there is no such backup, or one that was changed."""
        if (why := instance.why_backup_ends()) is not None:
            raise Conflict(f"the backup cannot be downloaded: {why}")
        with _readable(backup_id):
            found = await self._repository.find(BackupName(instance.instance_id, backup_id))
        if found is None:
            raise Conflict(f"the instance has no backup {backup_id}")
        if found.is_incremental:
            raise Conflict(INCREMENTAL)
        return found

    async def begin(self, stream: DataStream, found: Manifest) -> AsyncIterator[bytes]:
        """Holds no lock of anybody: a backup that is removed meanwhile is broken off.

        Conflict where its beginning was changed.
        """
        stream.limit(self._settings.download_timeout_s)
        chunks = self._repository.archive(found)
        with _readable(found.backup_id):
            first = await anext(chunks)
        return stream.passed_on(first, chunks)


@contextmanager
def _readable(backup_id: str) -> Iterator[None]:
    """Unavailable where the store is away."""
    with told("the backup cannot be read"):
        try:
            yield
        except DamagedError as error:
            raise Conflict(f"the backup {backup_id} is damaged: {error}") from error
