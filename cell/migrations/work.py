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
