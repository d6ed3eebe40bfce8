"""Instances whose data was lost with a former home of the cell, until they begin with a backup."""

import time
from collections.abc import Iterable
from dataclasses import replace
from typing import Final

import structlog

from cell.access.credentials import Credentials
from cell.access.tokens import Tokens
from cell.database import Database
from cell.instances.records import InstanceRecord, Records

log = structlog.get_logger("cell.lost_data")

LOST: Final = "the data was lost with its machine, and no backup of it has been restored yet"


class LostData:
    """Ids in the cell's database, noted by `menagerie recover`: the home that it makes has no data.

    Without that, an engine would be started with none, as if nothing had ever been there.
    """

    def __init__(self, database: Database) -> None:
        self._database = database

    def note(self, instance_ids: Iterable[str]) -> None:
        for instance_id in instance_ids:
            self._database.write(
                "INSERT OR IGNORE INTO lost_data VALUES (?, ?, 0)", instance_id, time.time()
            )

    def is_left(self, instance_id: str, *, has_begun: bool) -> bool:
        """Whether it is still without; a cell that was killed may have begun it and not noted."""
        query = "SELECT 1 FROM lost_data WHERE instance_id = ?"
        if self._database.row(query, instance_id) is None:
            return False
        if has_begun:
            self.forget(instance_id)
        return not has_begun

    def forget(self, instance_id: str) -> None:
        """It has begun with a backup."""
        self._database.write("DELETE FROM lost_data WHERE instance_id = ?", instance_id)

    def _is_prepared(self, instance_id: str) -> bool:
        query = "SELECT 1 FROM lost_data WHERE instance_id = ? AND prepared = 1"
        return self._database.row(query, instance_id) is not None

    def prepare(
        self, record: InstanceRecord, records: Records, credentials: Credentials, tokens: Tokens
    ) -> InstanceRecord:
        """As it is to be from now on; once, when the first cell starts with it.

        Former credentials end: whoever has the former disk has what they are sealed in, too. What
        it once began with is not what it begins with now. And its user is one of this home's.
        """
        name = record.instance_id
        if self._is_prepared(name):
            return record
        if credentials.generation(name)[0]:
            credentials.make(name, 0)
            tokens.outdate_all(name)
        spec = replace(record.spec, source_snapshot=None, source_backup=None, source_at=None)
        prepared = records.moved(replace(record, spec=spec))
        self._database.write("UPDATE lost_data SET prepared = 1 WHERE instance_id = ?", name)
        log.warning("cell.data_lost", instance_id=name)
        return prepared
