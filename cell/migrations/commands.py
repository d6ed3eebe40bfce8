"""What is asked of migrations: begun, sent a source, looked at, cut over and cancelled."""

import asyncio
import time
from typing import Any

import structlog

from cell.instances.hosted import HostedInstance
from cell.instances.supervisor import Supervisor
from cell.migrations import spool
from cell.migrations.record import Migration, MigrationRecords
from cell.migrations.runs import MigrationRuns
from cell.migrations.source_uri import PROTOCOLS, SourceUri
from cell.runtime.own_threads import in_own_thread
from specserver import Conflict, NotFound

log = structlog.get_logger("cell.migrations")

FORMATS = {
    "postgres": {"postgres_custom", "postgres_plain", "postgres_directory", "files"},
    "mariadb": {"mysql_dump", "files"},
    "redis": {"rdb"},
    "valkey": {"rdb"},
    "duckdb": {"duckdb", "files"},
}
"""By engine that takes migrations: the files that it takes."""
FOLLOWING = frozenset({"postgres", "resp", "mysql"})
"""What engines speak that can go on with the changes of a source."""
END_WITHIN_S = 15.0
DELETED = "the instance was deleted"
TAKEN = (
    "PostgreSQL takes dumps of pg_dump (custom format, plain SQL, a tar archive of the directory "
    "format) and running PostgreSQL servers; MariaDB takes dumps of mysqldump and "
    "mariadb-dump and running servers of MySQL and MariaDB, DuckDB takes database files, Redis and "
    "Valkey take RDB files and running servers; all but these two take CSV and Parquet files "
    "(the format files)"
)


class Migrations:
    def __init__(
        self,
        supervisor: Supervisor,
        records: MigrationRecords,
        runs: MigrationRuns,
    ) -> None:
        self._supervisor = supervisor
        self._records = records
        self._runs = runs
        self._known: dict[str, Migration] = {}
        self._receiving: dict[str, asyncio.Lock] = {}

    def open(self) -> None:
        """Goes on with what a former cell had begun."""
        for record in self._records.every():
            self._known[record.migration_id] = record
            instance = self._supervisor.instances.get(record.instance_id)
            if instance is not None and record.is_at_work:
                self._runs.resume(instance, record)

    def find(self, instance: HostedInstance, migration_id: str) -> Migration:
        found = self._known.get(migration_id)
        if found is None or found.instance_id != instance.instance_id:
            raise NotFound("the cell has no such migration of the instance")
        return found

    def begin(self, instance: HostedInstance, migration_id: str, body: dict[str, Any]) -> Migration:
        source = body["source"]
        given = (source["kind"], source["format"], body["mode"], body["dry_run"])
        table = source.get("table")
        made = Migration(migration_id, instance.instance_id, *given, table=table)
        if (known := self._known.get(migration_id)) is not None:
            asked = (known.instance_id, known.kind, known.format, known.mode, known.dry_run)
            if (*asked, known.table) != (instance.instance_id, *given, table):
                raise Conflict("this migration was begun otherwise")
            return known
        _check(instance, made)
        for other in self._known.values():
            if other.instance_id != instance.instance_id or not other.is_at_work:
                continue
            what = "has a way back" if other.has_ended else "is unfinished"
            raise Conflict(
                f"the migration {other.migration_id} into the instance {what}; cancel it, or wait "
                "until it has ended"
            )
        self._records.add(made)
        self._known[migration_id] = made
        self._log("cell.migration_begun", made)
        return made

    def cut_over(self, instance: HostedInstance, migration_id: str, keep_s: int) -> Migration:
        found = self.find(instance, migration_id)
        syncs = found.mode == "copy_and_sync"
        if syncs and found.status in ("cutting_over", "verifying", "completed"):
            return found
        if found.status != "syncing":
            raise Conflict(f"cannot cut over a migration that is {found.status}")
        self._runs.cut_over(found, keep_s)
        return found

    async def cancel(self, instance: HostedInstance, migration_id: str) -> Migration:
        found = self.find(instance, migration_id)
        if found.has_ended:
            self._runs.end_way_back(instance, found, None)
        else:
            await self._cancel(instance, found)
            self._log("cell.migration_cancelled", found)
        return found

    async def _cancel(
        self, instance: HostedInstance, found: Migration, reason: str | None = None
    ) -> None:
        """After the part that is being written, lest it comes back when all has been removed."""
        async with self._receiving.setdefault(found.migration_id, asyncio.Lock()):
            await self._runs.cancel(instance, found, reason)
        self._receiving.pop(found.migration_id, None)

    async def end_all(self, instance: HostedInstance, *, forgets: bool) -> None:
        """Of an instance that is deleted or erased: nobody waits for a source any more."""
        for found in list(self._known.values()):
            if found.instance_id != instance.instance_id:
                continue
            if found.is_at_work:
                if forgets:
                    # It goes with all that the instance has.
                    found.made.pop("database", None)
                if found.has_ended:
                    self._runs.end_way_back(instance, found, DELETED)
                else:
                    await self._cancel(instance, found, DELETED)
                # What is in the instance can be removed only as long as its engine runs.
                await self._runs.until_ended(found, END_WITHIN_S)
            if forgets:
                del self._known[found.migration_id]
        if forgets:
            self._records.forget(instance.instance_id)

    # The source, sent by a person.

    def received(self, instance: HostedInstance, migration_id: str) -> dict[str, Any]:
        found = self.find(instance, migration_id)
        return spool.told(found)

    def await_source(self, instance: HostedInstance, migration_id: str) -> Migration:
        """Raises Conflict where the migration does not wait for one."""
        found = self.find(instance, migration_id)
        if found.status != "awaiting_source":
            raise Conflict(f"the migration is {found.status}, and waits for no source")
        return found

    async def take_connection(
        self, instance: HostedInstance, migration_id: str, body: dict[str, Any]
    ) -> Migration:
        found = self.await_source(instance, migration_id)
        if found.kind != "connection":
            raise Conflict("the source of the migration is a file", code="wrong_source")
        protocol = instance.driver.protocol
        self._records.keep_source(found, SourceUri.parse(body, protocol))
        self._received(instance, found)
        return found

    async def take_part(
        self, instance: HostedInstance, migration_id: str, content: bytes, content_range: str | None
    ) -> Migration:
        found = self.await_source(instance, migration_id)
        if found.kind != "upload":
            raise Conflict("the source of the migration is a running server", code="wrong_source")
        part = spool.part_of(content_range, len(content))
        async with self._receiving.setdefault(migration_id, asyncio.Lock()):
            self.await_source(instance, migration_id)
            spool.check(found, part, instance.record.spec.size.storage_bytes)
            spool.check_disk(instance, part.total_bytes - part.begins_at)
            await in_own_thread(spool.write, instance, part.begins_at, content)
            found.received_bytes = part.begins_at + len(content)
            found.total_bytes = part.total_bytes
            if found.received_bytes == part.total_bytes:
                self._received(instance, found)
            else:
                self._records.save(found)
        return found

    def _received(self, instance: HostedInstance, found: Migration) -> None:
        found.received_at = time.time()
        found.status = "preflight"
        self._records.save(found)
        self._receiving.pop(found.migration_id, None)
        self._runs.resume(instance, found)
        self._log("cell.migration_source_received", found, bytes=found.received_bytes)

    @staticmethod
    def _log(event: str, found: Migration, **more: object) -> None:
        names = {"instance_id": found.instance_id, "migration_id": found.migration_id}
        log.info(event, **names, **more)


def _check(instance: HostedInstance, made: Migration) -> None:
    """Raises Conflict where the instance cannot take such a migration."""
    instance.refuse_gone("migrate into")
    if not instance.usable:
        raise Conflict(f"cannot migrate into an instance that is {instance.status}")
    formats = FORMATS.get(instance.driver.engine)
    if formats is None:
        raise Conflict(f"{instance.driver.engine} takes no migrations; {TAKEN}")
    if made.format is not None and made.format not in formats:
        raise Conflict(f"{instance.driver.engine} takes no {made.format}; {TAKEN}")
    if made.table is not None and made.format != "files":
        raise Conflict("only a single file of CSV or Parquet has the name of a table")
    if made.kind == "connection" and instance.driver.protocol not in PROTOCOLS:
        raise Conflict(f"{instance.driver.engine} takes files only; {TAKEN}")
    if made.mode == "copy_and_sync" and instance.driver.protocol not in FOLLOWING:
        raise Conflict(f"{instance.driver.engine} follows no source; use the mode copy")
    if made.mode == "copy_and_sync" and made.kind == "upload":
        raise Conflict("a file has no changes to sync; use the mode copy")
