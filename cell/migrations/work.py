"""What a migration is worked on with: its record, its instance, and how it is kept."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass

from cell.instances.hosted import HostedInstance
from cell.migrations.record import Migration, Status
from cell.settings import CellSettings


@dataclass(frozen=True)
class MigrationWork:
    settings: CellSettings
    instance: HostedInstance
    record: Migration
    save: Callable[[], None]

    def enter(self, status: Status) -> None:
        """From now on it is in that state, also after a restart; unless it is to end."""
        if self.record.ending is not None:
            raise asyncio.CancelledError
        self.record.status, self.record.reason = status, None
        self.save()

    def tell(self, reason: str | None, refused: str | None) -> None:
        """Of a sync, what it waits for; else why its last cutover was not made, until the next."""
        if self.record.status == "syncing":
            self.record.reason = reason or refused
        elif self.record.status == "cutting_over":
            self.record.reason = reason
