"""A migration that goes on with the changes of its source until the cutover."""

import asyncio
import contextlib
import time
from collections.abc import Sequence
from functools import partial
from typing import Any

from cell.migrations.errors import MigrationError, NotCaughtUpError, SourceUnreachableError
from cell.migrations.postgres import copying, reverse_sync, syncing
from cell.migrations.postgres.migration import ConnectionMigration
from cell.migrations.postgres.quoting import identifier
from cell.migrations.postgres.reverse_sync import MADE, ReverseSync
from cell.migrations.postgres.source import (
    REPEATABLE,
    LastingSession,
    PostgresSource,
    snapshot_name,
)
from cell.migrations.postgres.tables import (
    SourceTable,
    tables,
)
from cell.migrations.record import MigrationProgress
from cell.migrations.report import PreflightFinding
from cell.migrations.server_socket import ServerSocket

LOOK_EVERY_S = 1.0
CAUGHT_UP_WITHIN_S = 600.0
COMPARISONS_MAX = 3
NOT_CONNECTED = "the instance is not connected to the source; it tries again"
SNAPSHOT = "SELECT to_json(pg_catalog.pg_export_snapshot())"


class SyncMigration(ConnectionMigration):
    """`made` names the slot, the publication and the subscription, which have one name."""

    refused: str | None = None
    """Why the last cutover was not made, told until the next one."""

    @property
    def name(self) -> str:
        return f"menagerie_{self.record.suffix}"

    async def further(self, there: PostgresSource) -> Sequence[PreflightFinding]:
        try:
            await self.way_back().check(there)
        except SourceUnreachableError:
            raise
        except MigrationError as error:
            said = f"a cutover cannot keep a way back: {error}"
            return [PreflightFinding("info", "no_way_back", said)]
        return ()

    async def copy(self) -> None:
        """All that the slot's snapshot sees; then the subscription goes on from there."""
        await self.leave()
        await self.create()
        made = self.record.made
        async with self.source() as there:
            async with there.session() as asked:
                found = await tables(asked)
            made["publication"] = made["slot"] = self.name
            self.work.save()
            await syncing.publish(there, self.name, found)
            async with syncing.new_slot(there, self.name) as snapshot:
                made["schema"] = await copying.schema_digest(there, self.target, self.folder)
                async with there.in_snapshot(snapshot) as asked:
                    found = await tables(asked)
                await self.fill(there, snapshot, found)
        await self.target.analyze()
        made["subscription"] = self.name
        self.work.save()
        socket = self.socket()
        try:
            await socket.ensure()
            await syncing.subscribe(self.target, self.conduit, self.name, socket.folder)
        finally:
            await socket.end()

    def way_back(self) -> ReverseSync:
        return ReverseSync(self.work, self.target, self._host, self.conduit)

    async def forget_way_back(self, there: PostgresSource) -> None:
        """Of a cutover that was not made."""
        if MADE in self.record.made:
            await self.way_back().clear(there)
            del self.record.made[MADE]
            self.work.save()

    @property
    def _forgets_way_back(self) -> bool:
        """That of a migration that is completed stays."""
        return MADE in self.record.made and self.record.ending != "completed"

    async def drop(self) -> None:
        if self._forgets_way_back:
            await reverse_sync.drop(self.target, self.record.made[MADE])
        await super().drop()

    async def leave(self) -> None:
        if self._forgets_way_back:
            await self.way_back().leave()
            del self.record.made[MADE]
            self.work.save()
        await super().leave()

    def socket(self) -> ServerSocket:
        return ServerSocket(self._host, self.work.instance.site, self.conduit)

    async def follow(self, wants_cutover: asyncio.Event) -> None:
        """Until the cutover is asked for. Raises MigrationError where it cannot go on."""
        socket = self.socket()
        try:
            async with self.source() as there:
                await self._keep_up(there, socket, wants_cutover)
                try:
                    await self._cut_over(there, socket)
                except NotCaughtUpError:
                    # The instance keeps no changes meanwhile.
                    await self.forget_way_back(there)
                    raise
        finally:
            await socket.end()

    async def _keep_up(
        self, there: PostgresSource, socket: ServerSocket, wants_cutover: asyncio.Event
    ) -> None:
        lasting = LastingSession(there)
        try:
            while not wants_cutover.is_set():
                await self._look(lasting, socket)
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(LOOK_EVERY_S):
                        await wants_cutover.wait()
        finally:
            await lasting.end()

    async def _look(self, there: LastingSession, socket: ServerSocket) -> None:
        """Takes the figures, and sees to what a restart or a rotation has ended."""
        record, progress = self.record, self.record.progress or MigrationProgress()
        record.progress = progress
        if not self.work.instance.usable:
            record.reason = "the instance is not running; the sync goes on when it does"
            return
        await socket.ensure()
        await self._own()
        try:
            async with there.session() as asked:
                found = await syncing.lag(asked, self.name)
        except MigrationError as error:
            # It may be back in a moment, and has kept the changes since.
            record.reason = str(error)
            return
        if found is None or found.is_lost:
            raise MigrationError(
                "the source has removed the replication slot, and the changes since; begin anew"
            )
        known = await syncing.state(self.target, self.name)
        record.reason = self.refused if known and known.is_working else NOT_CONNECTED
        progress.lag_bytes = found.bytes
        heard_s = known.heard_s if known else None
        progress.lag_s = 0.0 if not found.bytes else heard_s and round(heard_s, 1)
        progress.updated_at = time.time()

    async def _own(self) -> None:
        """The subscription belongs to a login that works, and is enabled."""
        known = await syncing.state(self.target, self.name)
        if known is None:
            raise MigrationError("the subscription was removed in the instance; begin anew")
        named, login = identifier(self.name), self.target.login.username
        if known.owner != login:
            await syncing.hand_over(self.target, self.name)
        if not known.is_enabled:
            await self.target.as_server(f"ALTER SUBSCRIPTION {named} ENABLE")

    async def _cut_over(self, there: PostgresSource, socket: ServerSocket) -> None:
        self.work.enter("cutting_over")
        await socket.ensure()
        await self._own()
        await self.forget_way_back(there)
        found = await self._unchanged_tables(there)
        for _ in range(COMPARISONS_MAX):
            await self._catch_up(there)
            if self.record.keep_way_back_s:
                # Before both are compared: what is written from here on is not forgotten.
                await self.way_back().prepare(there, found)
            self.work.enter("verifying")
            await self._take_over(there, found)
            verification = await self._compared(there, found)
            self.record.verification = verification
            self.work.save()
            if not verification["differences"]:
                break
            self.work.enter("cutting_over")
        else:
            first = verification["differences"][0]["object"]
            raise NotCaughtUpError(
                f"source and instance differ, in {first} first: end what writes to the source, "
                "and cut over again"
            )

    async def _unchanged_tables(self, there: PostgresSource) -> list[SourceTable]:
        digest = await copying.schema_digest(there, self.target, self.folder)
        if digest != self.record.made.get("schema"):
            raise MigrationError(
                "the schema of the source was changed while it synced, which the sync does not "
                "carry; begin a new migration"
            )
        async with there.session() as asked:
            return await tables(asked)

    async def _catch_up(self, there: PostgresSource) -> None:
        """Until the instance has what the source had when this began."""
        deadline = time.monotonic() + CAUGHT_UP_WITHIN_S
        async with there.session() as asked:
            position = str(await asked.value(syncing.POSITION))
            while not await syncing.has_passed(asked, self.name, position):
                if time.monotonic() > deadline:
                    raise NotCaughtUpError(
                        f"the instance was not level with the source within "
                        f"{CAUGHT_UP_WITHIN_S:.0f} s; try the cutover again later"
                    )
                await asyncio.sleep(LOOK_EVERY_S / 10)

    async def _take_over(self, there: PostgresSource, found: Sequence[SourceTable]) -> None:
        """What replication does not carry: unlogged tables, sequences, what is made of rows."""
        unlogged = [each for each in found if each.persistence == "u"]
        if unlogged:
            await copying.copy_tables(there, self.target, unlogged, replaces=True)
        await copying.copy_sequences(there, self.target)
        await copying.refresh(there, self.target)

    async def _compared(
        self, there: PostgresSource, found: Sequence[SourceTable]
    ) -> dict[str, Any]:
        async with there.session() as holder:
            await holder.run(REPEATABLE)
            snapshot = snapshot_name(await holder.value(SNAPSHOT))
            opened = partial(there.in_snapshot, snapshot)
            return await self.compared(opened, found)
