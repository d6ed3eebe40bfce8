"""Which backup the next one of an instance may build on, and which ones others build on.

What must be known of the files of that backup lies beside the instance's data. Where that is lost,
or does not fit the data or the store, the next backup is a full one.
"""

import time
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import orjson
import structlog

from cell.backups.lineage import Lineage
from cell.backups.manifest import BackupName, Kind, Manifest, Parent
from cell.backups.repository import Repository
from cell.backups.sealed_objects import DamagedError
from cell.database import Database
from cell.engines.increments import CopyMark, PacksIncrements
from cell.instances.hosted import HostedInstance
from cell.layout import write_atomically
from cell.runtime.own_threads import in_own_thread
from cell.settings import CellSettings
from cell.specification import Spec

log = structlog.get_logger("cell.backups")

NOTE: Final = "backup-mark.json"
BUILDS_ON: Final = frozenset[Kind]({"scheduled"})
"""Kinds that build on others, of the same kind. Others are whole: they are downloaded, kept for
long, or deleted by whoever asked for them.
"""


@dataclass(frozen=True)
class BackupMark:
    """Of the newest backup that the next one may build on. Times are unix seconds.

    Beside the full one, of that moment, it consists of so many `increments`.
    """

    parent: Parent
    increments: int
    full_at: float
    copied: CopyMark


class Increments:
    def __init__(self, settings: CellSettings, database: Database, repository: Repository) -> None:
        self._settings = settings
        self._database = database
        self._repository = repository

    def may_build(self, instance: HostedInstance, kind: Kind, data_bytes: int) -> bool:
        """Whether a later backup may build on one of these, for all that is known before."""
        limits = self._settings
        has_driver = isinstance(instance.driver, PacksIncrements)
        is_wanted = limits.backup_increments_max > 0 and kind in BUILDS_ON
        return has_driver and is_wanted and data_bytes >= limits.backup_increment_bytes_min

    async def mark(self, instance: HostedInstance, kind: Kind) -> BackupMark | None:
        """What a backup that is made now may build on, unless that is removed meanwhile."""
        if kind not in BUILDS_ON:
            return None
        row = self._database.row(
            "SELECT backup_id, sha256, increments, full_at FROM backup_marks WHERE instance_id = ?",
            instance.instance_id,
        )
        if row is None:
            return None
        backup_id, sha256, increments, full_at = row
        limits = self._settings
        is_old = time.time() - full_at > limits.backup_full_every_s
        if is_old or increments >= limits.backup_increments_max:
            return None
        copied = await in_own_thread(_read, instance, backup_id)
        if copied is None:
            return None
        return BackupMark(Parent(backup_id, sha256), increments, full_at, copied)

    async def lineage(self, instance: HostedInstance, mark: BackupMark) -> Lineage | None:
        """Of what is held now, with all it needs; None where the store lacks some of it.

        Raises StoreError.
        """
        name = BackupName(instance.instance_id, mark.parent.backup_id)
        spec, reason = instance.record.spec, "it is not in the store any more"
        try:
            found = await self._repository.find_written(name)
            if found is not None and self._is_marked(name) and self._fits(found, mark, spec):
                return await self._repository.lineage_written(found)
        except DamagedError as error:
            reason = str(error)
        given = {"instance_id": name.instance_id, "backup_id": name.backup_id}
        log.warning("cell.backup_not_built_on", **given, reason=reason)
        return None

    @staticmethod
    def _fits(found: Manifest, mark: BackupMark, spec: Spec) -> bool:
        is_same_engine = (found.engine, found.engine_version) == (spec.engine, spec.engine_version)
        return is_same_engine and found.stored_sha256 == mark.parent.sha256

    def _is_marked(self, name: BackupName) -> bool:
        """Not once its removal has begun."""
        asked = "SELECT 1 FROM backup_marks WHERE instance_id = ? AND backup_id = ?"
        return self._database.row(asked, name.instance_id, name.backup_id) is not None

    async def note(
        self,
        instance: HostedInstance,
        made: Manifest,
        copied: CopyMark | None,
        former: BackupMark | None,
    ) -> None:
        """From now on the next one may build on that backup, which may build on the `former`."""
        self.add(made)
        if made.kind not in BUILDS_ON:
            return
        await in_own_thread(_write, instance, made.backup_id, copied)
        if copied is None:
            self._database.write("DELETE FROM backup_marks WHERE instance_id = ?", made.instance_id)
            return
        increments, full_at = 0, made.started_at
        if made.parent is not None and former is not None:
            increments, full_at = former.increments + 1, former.full_at
        self._database.write(
            "INSERT OR REPLACE INTO backup_marks VALUES (?, ?, ?, ?, ?)",
            *(made.instance_id, made.backup_id, made.stored_sha256, increments, full_at),
        )

    def add(self, made: Manifest) -> None:
        """Also of one that another cell has made."""
        if made.parent is not None:
            self._database.write(
                "INSERT OR REPLACE INTO backup_parents VALUES (?, ?, ?)",
                *(made.backup_id, made.instance_id, made.parent.backup_id),
            )

    def removable(self, instance: HostedInstance, gone: Collection[str]) -> list[str]:
        """Those of them that nothing builds on which stays, in an order in which none is missed."""
        parents = dict(self._parents(instance))
        left = set(gone)
        while kept := {parents.get(each) for each in parents if each not in left} & left:
            left -= kept

        def depth(backup_id: str) -> int:
            found, now = 0, parents.get(backup_id)
            while now is not None and found < len(parents):
                found, now = found + 1, parents.get(now)
            return found

        return sorted(left, key=lambda each: (-depth(each), each))

    def forget(self, gone: Collection[str]) -> None:
        """They are being removed: nothing builds on them from now on."""
        for each in gone:
            self._database.write("DELETE FROM backup_marks WHERE backup_id = ?", each)

    def dropped(self, gone: Collection[str]) -> None:
        for each in gone:
            self._database.write("DELETE FROM backup_parents WHERE backup_id = ?", each)

    def erase(self, instance_id: str) -> None:
        for table in ("backup_parents", "backup_marks"):
            self._database.write(f"DELETE FROM {table} WHERE instance_id = ?", instance_id)  # noqa: S608 - our own words

    def _parents(self, instance: HostedInstance) -> list[tuple[Any, ...]]:
        return self._database.rows(
            "SELECT backup_id, parent_id FROM backup_parents WHERE instance_id = ?",
            instance.instance_id,
        )


def _path(instance: HostedInstance) -> Path:
    return instance.site.directory / NOTE


def _read(instance: HostedInstance, backup_id: str) -> CopyMark | None:
    """None where it cannot be read, or is of another backup."""
    try:
        document = orjson.loads(_path(instance).read_bytes())
        return CopyMark.parse(document["copied"]) if document["backup_id"] == backup_id else None
    except (OSError, AttributeError, KeyError, TypeError, ValueError):
        return None


def _write(instance: HostedInstance, backup_id: str, copied: CopyMark | None) -> None:
    path = _path(instance)
    if copied is None:
        path.unlink(missing_ok=True)
        return
    write_atomically(path, orjson.dumps({"backup_id": backup_id, "copied": copied.document()}))
