"""CSV and Parquet files into PostgreSQL: new tables in the owner's database, in one transaction.

What is there already is neither looked at nor changed, and nobody sees a table before all of them
are there. The transaction's number tells whether it was committed, whatever breaks off then.
"""

import asyncio
import re
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack
from functools import partial
from typing import Final

from cell.migrations.errors import MigrationError
from cell.migrations.postgres.psql import PsqlSession, QueryError
from cell.migrations.postgres.quoting import identifier, literal, qualified
from cell.migrations.postgres.tables import ALIKE
from cell.migrations.postgres.target import DATABASE, PostgresTarget
from cell.migrations.record import MigrationProgress
from cell.migrations.report import (
    Difference,
    PreflightFinding,
    PreflightReport,
    verification,
)
from cell.migrations.table_files.reader import Telling
from cell.migrations.table_files.tables import FileTable, TableRules
from cell.migrations.table_files.unpacking import FileTables, Unpacking
from cell.migrations.work import MigrationWork
from cell.runtime.confined_tools import ConfinedToolError
from instance_services.table_files import canonical, kinds

RULES: Final = TableRules(
    engine="PostgreSQL",
    schema="public",
    name_bytes_max=63,
    columns_max=1600,
    folds_case=False,
    taken_columns=frozenset({"ctid", "xmin", "cmin", "xmax", "cmax", "tableoid"}),
    taken_schemas=re.compile("pg_|information_schema$"),
)
TYPES: Final = {
    kinds.BOOLEAN: "boolean",
    kinds.BIGINT: "bigint",
    kinds.DECIMAL: "numeric",
    kinds.REAL: "real",
    kinds.DOUBLE: "double precision",
    kinds.DATE: "date",
    kinds.TIMESTAMP: "timestamp",
    kinds.TIMESTAMPTZ: "timestamptz",
    kinds.TIME: "time",
    kinds.UUID: "uuid",
    # Until it has been compared: the other type does not keep the text.
    kinds.JSON: "json",
    kinds.BLOB: "bytea",
    kinds.TEXT: "text",
}
NAMES = """
SELECT json_build_array(n.nspname, c.relname)
FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
WHERE n.nspname IN ({schemas})
UNION ALL SELECT json_build_array(n.nspname, t.typname)
FROM pg_catalog.pg_type t JOIN pg_catalog.pg_namespace n ON n.oid = t.typnamespace
WHERE n.nspname IN ({schemas}) AND t.typrelid = 0 AND t.typelem = 0
"""
RESERVED = "SELECT to_json(word) FROM pg_catalog.pg_get_keywords() WHERE catcode IN ('R', 'T')"
# How a session of a migration is told from others, by a cell that did not begin it.
SESSIONS = """
FROM pg_catalog.pg_stat_activity WHERE application_name = {name} AND datname = {database}
"""
ENDED_WITHIN_S = 20.0
SETTLED_WITHIN_S = 90.0
LOOK_EVERY_S = 0.2


class TableFilesMigration:
    """`swap` commits what `copy` has made."""

    def __init__(self, work: MigrationWork, target: PostgresTarget) -> None:
        self.work = work
        self._target = target
        self._unpacking = Unpacking(work.instance, target.toolbox, RULES, work.record.table)
        self._found: FileTables | None = None
        self._stack = AsyncExitStack()
        self._session: PsqlSession | None = None

    async def preflight(self) -> PreflightReport:
        found = self._found = await self._unpacking.found()
        findings = [*found.findings]
        if found.tables:
            async with self._target.session(DATABASE) as asked:
                await asked.run(*ALIKE)
                findings += await _of_target(asked, found.tables)
        return PreflightReport(None, None, found.size_bytes, tuple(findings))

    async def copy(self) -> None:
        if self._found is None:
            # By a cell that was started anew.
            self._found = await self._unpacking.found()
            if blocking := [each for each in self._found.findings if each.severity == "blocking"]:
                raise MigrationError(blocking[0].message)
        tables = self._found.tables
        record = self.work.record
        record.made["session"] = self._name
        self.work.save()
        await self._end_sessions()
        self._session = await self._stack.enter_async_context(self._target.session(DATABASE))
        named = f"SET application_name = {literal(self._name)}"
        await self._session.run(*ALIKE, named, "BEGIN")
        await self._session.run(*_creating(tables))
        record.progress = MigrationProgress(
            bytes_done=0,
            bytes_total=self._found.size_bytes,
            rows_done=0,
            tables_done=0,
            tables_total=len(tables),
        )
        differences: list[Difference] = []
        async with self._unpacking.reader.started("copy") as telling:
            for table in tables:
                differences += await self._fill(self._session, telling, table)
        self.work.enter("verifying")
        self._verified(tables, differences)
        await self._session.run(*_finishing(tables))

    @property
    def _name(self) -> str:
        return f"migration_{self.work.record.suffix}"

    async def _fill(
        self, session: PsqlSession, telling: Telling, table: FileTable
    ) -> Sequence[Difference]:
        columns = ", ".join(identifier(each.name) for each in table.columns)
        place = qualified(table.schema, table.name)
        copy = f"COPY {place} ({columns}) FROM STDIN (FREEZE)"
        await session.fill(copy, self._counted(telling, table))
        said = await telling.line()
        sent = int(said["rows"]), str(said["digest"])
        hashed = canonical.in_postgres([(identifier(c.name), c.kind) for c in table.columns])
        query = f"""
        SELECT json_build_array(count(*), coalesce(sum({hashed}), 0)::text) FROM ONLY {place}
        """  # noqa: S608 - quoted
        count, digest = await session.value(query)
        self._done(table)
        if (count, digest) == sent and count == table.rows:
            return ()
        told = (f"{table.rows} rows, {sent[0]} sent", f"{count} rows, digest {digest}")
        return (Difference(table.shown, *told),)

    async def _counted(self, telling: Telling, table: FileTable) -> AsyncIterator[bytes]:
        progress = self.work.record.progress or MigrationProgress()
        before, came = progress.bytes_done or 0, 0
        async for block in telling.blocks():
            yield block
            came += len(block)
            # As they are sent, they may be longer or shorter than in the file.
            progress.bytes_done = before + min(came, table.size_bytes)
            progress.updated_at = time.time()
        progress.bytes_done = before + table.size_bytes

    def _done(self, table: FileTable) -> None:
        if (progress := self.work.record.progress) is not None:
            progress.tables_done = (progress.tables_done or 0) + 1
            progress.rows_done = (progress.rows_done or 0) + table.rows

    def _verified(self, tables: Sequence[FileTable], differences: Sequence[Difference]) -> None:
        rows = sum(each.rows for each in tables)
        self.work.record.verification = verification(len(tables), rows, differences)
        self.work.save()
        if differences:
            raise MigrationError(
                f"the instance has not what the files have: {len(differences)} differences, "
                f"the first in {differences[0].object}"
            )

    async def swap(self) -> None:
        """Commits, or finds out whether a former cell did."""
        made, session = self.work.record.made, self._session
        if session is not None:
            made["swap"] = str(await session.value("SELECT to_json(pg_current_xact_id()::text)"))
            self.work.save()
            try:
                await session.run("COMMIT")
            except (QueryError, ConfinedToolError, OSError):
                if not await self._is_committed(made["swap"]):
                    raise
            await self.close()
        elif not await self._is_committed(made["swap"]):
            raise MigrationError("the cell was stopped before the tables were there; begin anew")
        made.pop("session", None)
        made.pop("swap")
        self.work.save()

    async def _is_committed(self, number: str) -> bool:
        """Of a transaction. Waits for an engine that is started anew."""
        began = time.monotonic()
        while True:
            try:
                async with self._target.session("postgres") as asked:
                    query = f"SELECT to_json(pg_catalog.pg_xact_status({literal(number)}::xid8))"
                    status = await asked.value(query)
            except (QueryError, ConfinedToolError, OSError):
                status = "in progress"
            if status != "in progress":
                return bool(status == "committed")
            if time.monotonic() - began > SETTLED_WITHIN_S:
                raise MigrationError("the engine does not tell whether the tables are there; look")
            await asyncio.sleep(LOOK_EVERY_S)

    async def close(self) -> None:
        """What was not committed goes."""
        self._session = None
        await self._stack.aclose()

    async def drop(self) -> None:
        """A transaction that a migration which ends otherwise still has."""
        await self.close()
        await self._end_sessions()
        self.work.record.made.pop("session", None)
        self.work.record.made.pop("swap", None)
        self.work.save()

    async def _end_sessions(self) -> None:
        """By the server: one that works does not notice that nobody listens any more."""
        found = SESSIONS.format(name=literal(self._name), database=literal(DATABASE))
        began = time.monotonic()
        asking = partial(self._target.as_server, database="postgres")
        while await asking(f"SELECT pg_catalog.pg_terminate_backend(pid) {found}"):
            if time.monotonic() - began > ENDED_WITHIN_S:
                raise MigrationError("a session of the migration does not end")
            await asyncio.sleep(LOOK_EVERY_S)

    async def leave(self) -> None:
        """There is nothing of it at any source."""


async def _of_target(asked: PsqlSession, tables: Sequence[FileTable]) -> Sequence[PreflightFinding]:
    """What is there already, and words that have to be quoted."""
    findings = []
    schemas = ", ".join(literal(each) for each in sorted({table.schema for table in tables}))
    there = {tuple(each) for each in await asked.rows(NAMES.format(schemas=schemas))}
    words = {str(each) for each in await asked.rows(RESERVED)}
    for table in tables:
        if (table.schema, table.name) in there:
            remedy = "rename the file, or rename or drop what is there"
            message = "there is something of that name already"
            findings.append(
                PreflightFinding("blocking", "table_exists", message, remedy, table.shown)
            )
        reserved = [each.name for each in table.columns if each.name in words]
        if table.name in words:
            reserved.append(table.name)
        if reserved:
            message = f"names that have to be quoted in SQL: {', '.join(reserved)}"
            findings.append(
                PreflightFinding("warning", "reserved_name", message, None, table.shown)
            )
    return findings


def _creating(tables: Sequence[FileTable]) -> list[str]:
    schemas = sorted({each.schema for each in tables} - {RULES.schema})
    made = [f"CREATE SCHEMA IF NOT EXISTS {identifier(each)}" for each in schemas]
    for table in tables:
        columns = ", ".join(f"{identifier(c.name)} {TYPES[c.kind]}" for c in table.columns)
        made.append(f"CREATE TABLE {qualified(table.schema, table.name)} ({columns})")
    return made


def _finishing(tables: Sequence[FileTable]) -> list[str]:
    """What has been compared gets the types that it is to have, and statistics."""
    made = []
    for table in tables:
        place = qualified(table.schema, table.name)
        documents = [identifier(c.name) for c in table.columns if c.kind == kinds.JSON]
        if documents:
            changes = ", ".join(
                f"ALTER COLUMN {each} TYPE jsonb USING {each}::jsonb" for each in documents
            )
            made.append(f"ALTER TABLE {place} {changes}")
        made.append(f"ANALYZE {place}")
    return made
