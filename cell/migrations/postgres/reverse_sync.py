"""A sync that is turned round after the cutover: the source gets what is written to the instance.

The instance's server keeps the changes in a replication slot, and decodes them. The cell carries
them to the source, as its user: instances have no network, and a source could not be trusted with
a login that may replicate. How far it is stands at the source, in the transaction of the changes.
"""

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Callable, Sequence

from cell.engines.postgres.connections import MessageTooLargeError, NotRunningError
from cell.migrations.conduit import Conduit
from cell.migrations.errors import MigrationError, NotCaughtUpError, ReverseSyncEndedError
from cell.migrations.postgres import source, source_writer, writable
from cell.migrations.postgres.change_stream import ROW_BYTES_MAX, ChangeStream, position
from cell.migrations.postgres.pgoutput import Begin, Commit
from cell.migrations.postgres.psql import PsqlSession, QueryError
from cell.migrations.postgres.quoting import identifier, literal
from cell.migrations.postgres.source import PostgresSource
from cell.migrations.postgres.source_writer import SourceWriter
from cell.migrations.postgres.tables import ALIKE, USERS, SourceTable, sequences
from cell.migrations.postgres.tables import Sequence as TableSequence
from cell.migrations.postgres.target import DATABASE, PostgresTarget
from cell.migrations.record import Migration, MigrationProgress
from cell.migrations.work import MigrationWork
from cell.runtime.host import Host

MADE = "way_back"
"""In what a migration has made: the name of the slot, the publication and the source's schema."""
LOOK_EVERY_S = 2.0
WAIT_S = 1.0
SCHEMA_EVERY_S = 5.0
SLOT_WITHIN_S = 30
OTHERS_AFTER = 200
# Who still decodes is ended first, and takes a moment to go.
DROPS_MAX = 50
DROP_AGAIN_S = 0.1
WAL_LEVEL = "SELECT current_setting('wal_level')"
END_DECODER = """
SELECT pg_catalog.pg_terminate_backend(active_pid) FROM pg_catalog.pg_replication_slots
WHERE slot_name = {name} AND active_pid IS NOT NULL
"""
DROP_SLOT = """
SELECT pg_catalog.pg_drop_replication_slot(slot_name) FROM pg_catalog.pg_replication_slots
WHERE slot_name = {name}
"""
SLOT = """
SELECT json_build_array(database, wal_status = 'lost', pg_catalog.pg_current_wal_lsn()::text,
    confirmed_flush_lsn::text)
FROM pg_catalog.pg_replication_slots WHERE slot_name = {name}
"""
# Each change of a column writes its row in the catalog anew.
SCHEMA = f"""
SELECT to_json(pg_catalog.md5(coalesce(string_agg(concat_ws(' ', c.oid, n.nspname, c.relname,
    c.relpersistence, c.relreplident, a.attname, a.atttypid, a.xmin), ',' ORDER BY c.oid, a.attnum),
    '')))
FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
LEFT JOIN pg_catalog.pg_attribute a ON a.attrelid = c.oid AND a.attnum > 0
WHERE c.relkind IN ('r', 'p') AND c.relpersistence <> 't' AND {USERS}
"""  # noqa: S608 - our own words
SEQUENCES = """
SELECT json_build_array(schemaname, sequencename, last_value) FROM pg_catalog.pg_sequences
WHERE last_value IS NOT NULL
"""


def name_of(record: Migration) -> str:
    """Of the slot, the publication, and the schema at the source."""
    return f"menagerie_back_{record.suffix}"


async def drop(target: PostgresTarget, name: str) -> None:
    """What is in the instance."""
    await _drop_slot(target, literal(name))
    for database in (target.database, DATABASE):
        if await target.has(database):
            async with target.session(database) as asked:
                await asked.run(f"DROP PUBLICATION IF EXISTS {identifier(name)}")


async def _drop_slot(target: PostgresTarget, named: str) -> None:
    for attempt in range(DROPS_MAX):
        try:
            await target.as_server(END_DECODER.format(name=named), database="postgres")
            await target.as_server(DROP_SLOT.format(name=named), database="postgres")
        except QueryError:
            if attempt == DROPS_MAX - 1:
                raise
            await asyncio.sleep(DROP_AGAIN_S)
        else:
            return


class ReverseSync:
    """Of one migration. `way_back` of its record: what has to be known of it from then on."""

    def __init__(
        self, work: MigrationWork, target: PostgresTarget, host: Host, conduit: Conduit
    ) -> None:
        self._work = work
        self._target = target
        self._host = host
        self._conduit = conduit
        self._behind_since: float | None = None
        self._schema_at = 0.0
        self._sent: dict[TableSequence, int] = {}

    @property
    def name(self) -> str:
        return name_of(self._work.record)

    async def check(self, there: PostgresSource) -> bool:
        """Whether triggers rest at the source. Raises MigrationError where no way back is kept."""
        if await self._target.as_server(WAL_LEVEL, database="postgres") != [("logical",)]:
            raise MigrationError(
                "the engine of the instance was started by an earlier version; cancel the "
                "migration, pause and resume the instance, and begin anew, or cut over without one"
            )
        return await writable.check(there)

    # Made in the cutover, in the new database.

    async def prepare(self, there: PostgresSource, tables: Sequence[SourceTable]) -> None:
        """From here on the instance keeps its changes. Raises NotCaughtUpError where it cannot.

        Those that the subscription applies are none of them: the source has them.
        """
        try:
            await self._prepare(there, tables)
        except MigrationError as error:
            raise NotCaughtUpError(f"no way back can be kept: {error}") from error

    async def _prepare(self, there: PostgresSource, tables: Sequence[SourceTable]) -> None:
        record, target, name = self._work.record, self._target, identifier(self.name)
        is_replica = await self.check(there)
        record.made[MADE] = self.name
        self._work.save()
        await self.clear(there)
        async with there.session() as asked:
            await source_writer.make(asked, self.name)
        listed = ", ".join(each.sql for each in tables if each.persistence == "p")
        of = f" FOR TABLE {listed}" if listed else ""
        async with target.session() as asked:
            await asked.run(*ALIKE, f"CREATE PUBLICATION {name}{of}")
            schema = str(await asked.value(SCHEMA))
        await self._make_slot()
        record.way_back = {"triggers": "rest" if is_replica else "act", "schema": schema}
        self._work.save()

    async def _make_slot(self) -> None:
        named = literal(self.name)
        try:
            await self._target.as_server(
                f"SET statement_timeout = '{SLOT_WITHIN_S}s'",
                f"SELECT pg_catalog.pg_create_logical_replication_slot({named}, 'pgoutput')",
            )
        except QueryError as error:
            raise MigrationError(
                "the instance cannot keep its changes while a transaction of a client is open "
                f"({error}); end it, and cut over again"
            ) from error

    async def clear(self, there: PostgresSource) -> None:
        """What a cutover has made that did not come to its end."""
        await drop(self._target, self.name)
        async with there.session() as asked:
            await source_writer.remove(asked, self.name)

    async def leave(self) -> None:
        """What is at the source."""
        async with self._source() as there, there.session() as asked:
            await source_writer.remove(asked, self.name)

    # Kept.

    async def carry(self, works: Callable[[], None]) -> None:
        """For ever. Raises ReverseSyncEndedError where it cannot go on; others are tried again.

        `works` is called once nothing holds it up.
        """
        try:
            await self._carry(works)
        except ReverseSyncEndedError:
            # What was committed before that change is to be at the source.
            await self._carry(works, singly=True)

    async def _carry(self, works: Callable[[], None], *, singly: bool = False) -> None:
        async with self._target.session("postgres") as near:
            await near.run(*ALIKE)
            await self._look_at_slot(near)
        async with contextlib.AsyncExitStack() as stack:
            there = await stack.enter_async_context(self._source())
            asked = await stack.enter_async_context(there.writing())
            near = await stack.enter_async_context(self._target.session(DATABASE))
            await near.run(*ALIKE)
            is_replica = self._work.record.way_back.get("triggers") == "rest"
            writer = SourceWriter(asked, self.name, is_replica=is_replica, singly=singly)
            await writer.begin()
            confirmed = (await self._look_at_slot(near))[1]
            if 0 < writer.applied < confirmed:
                raise ReverseSyncEndedError(
                    "the source is not as new as it was, as after a failover or a restore"
                )
            known = set(await sequences(asked))
            named = literal(self.name)
            await self._target.as_server(END_DECODER.format(name=named), database="postgres")
            stream = await stack.enter_async_context(self._stream(writer.applied))
            works()
            await self._follow(stream, writer, near, known)

    @contextlib.asynccontextmanager
    async def _source(self) -> AsyncIterator[PostgresSource]:
        async with source.opened(self._host, self._conduit, self._target) as made:
            yield made

    @contextlib.asynccontextmanager
    async def _stream(self, after: int) -> AsyncIterator[ChangeStream]:
        try:
            async with self._target.decoding(ROW_BYTES_MAX) as connection:
                made = ChangeStream(connection)
                await made.start(self.name, after)
                yield made
        except MessageTooLargeError as error:
            raise ReverseSyncEndedError(
                f"a row of more than {ROW_BYTES_MAX >> 20} MiB was written"
            ) from error
        except NotRunningError as error:
            raise MigrationError("the engine of the instance does not respond") from error

    async def _follow(
        self,
        stream: ChangeStream,
        writer: SourceWriter,
        near: PsqlSession,
        known: set[TableSequence],
    ) -> None:
        is_within, is_known, looked_at, count = False, False, 0.0, 0
        while True:
            message = stream.next()
            if isinstance(message, Begin):
                is_within, is_known = True, message.commit < writer.applied
            elif isinstance(message, Commit):
                is_within = False
                if not is_known:
                    await writer.committed(message.end)
            elif message is not None and not is_known:
                await writer.add(message)
            is_due = time.monotonic() - looked_at > LOOK_EVERY_S
            if not is_within and (message is None or is_due):
                await writer.commit()
                await writer.reached(stream.reached)
                await stream.confirm(writer.applied)
                if is_due:
                    await self._carry_sequences(writer, near, known)
                    await self._look(near, max(writer.applied, stream.reached))
                    looked_at = time.monotonic()
            if message is None:
                await stream.wait(WAIT_S)
            elif (count := count + 1) % OTHERS_AFTER == 0:
                await asyncio.sleep(0)

    async def _carry_sequences(
        self, writer: SourceWriter, near: PsqlSession, known: set[TableSequence]
    ) -> None:
        """Those that have gone on; no change of a table tells of them."""
        found = {
            TableSequence(str(schema), str(name)): int(value)
            for schema, name, value in await near.rows(SEQUENCES)
        }
        new = [
            (each, value)
            for each, value in found.items()
            if each in known and self._sent.get(each) != value
        ]
        await writer.set_sequences(new)
        self._sent.update(new)

    async def _look(self, near: PsqlSession, carried: int) -> None:
        written, _ = await self._look_at_slot(near)
        now, behind = time.monotonic(), max(0, written - carried)
        if now - self._schema_at > SCHEMA_EVERY_S:
            if str(await near.value(SCHEMA)) != self._work.record.way_back.get("schema"):
                raise ReverseSyncEndedError(
                    "tables or columns were made, changed or dropped in the instance, which is "
                    "not carried"
                )
            self._schema_at = now
        if not behind:
            self._behind_since = None
        elif self._behind_since is None:
            self._behind_since = now
        progress = self._work.record.progress or MigrationProgress()
        self._work.record.progress = progress
        progress.lag_bytes = behind
        progress.lag_s = round(now - (self._behind_since or now), 1)
        progress.updated_at = time.time()

    async def _look_at_slot(self, near: PsqlSession) -> tuple[int, int]:
        """What the instance has written, and what is confirmed of it."""
        found = await near.rows(SLOT.format(name=literal(self.name)))
        if not found:
            raise ReverseSyncEndedError("the database of the instance was dropped or made anew")
        database, is_lost, written, confirmed = found[0]
        if database != DATABASE:
            raise ReverseSyncEndedError("the database of the instance was renamed")
        if is_lost or confirmed is None:
            raise ReverseSyncEndedError(
                "the source was away while more was written than the instance keeps for it"
            )
        return position(str(written)), position(str(confirmed))
