"""Changes written to a source, many at once, in one transaction with how far they go.

A session that was cut off may still be at its end when the next one begins. Whoever commits moves
the position on from where he found it, so that of two only one can.
"""

import contextlib
import re
import time
from collections.abc import Iterator, Sequence

from cell.migrations.errors import MigrationError, ReverseSyncEndedError
from cell.migrations.postgres import change_stream, statements, writable
from cell.migrations.postgres.pgoutput import Change, Truncate
from cell.migrations.postgres.psql import PsqlSession, QueryError
from cell.migrations.postgres.quoting import identifier, literal, shown
from cell.migrations.postgres.tables import Sequence as TableSequence

STATEMENTS_MAX = 500
BYTES_MAX = 1 << 20
"""Of what is sent at once; one change may be larger."""
CHANGES_MAX = 20_000
"""After so many of them a transaction is committed with the one of the instance that it is in."""
POSITION_EVERY_S = 10.0
POSITION_BYTES = 4 * 2**20
"""So far the position at the source is behind, where only what does not concern it was written."""
SETTINGS = (
    "SET synchronous_commit = on",
    "SET lock_timeout = '30s'",
    "SET default_transaction_isolation = 'read committed'",
)
TABLE = "position"
# What may be otherwise in a moment: connections, resources, locks, who reads only, an operator.
_PASSING = re.compile(r"(08|25|28|3D|40|53|55|57|58|XX)\w{3}: ")
_STATE = re.compile(r"[0-9A-Z]{5}: ")


async def make(session: PsqlSession, name: str) -> None:
    """In a schema of that name, which goes with all that is in it."""
    schema = identifier(name)
    await session.run(
        f"DROP SCHEMA IF EXISTS {schema} CASCADE",
        f"CREATE SCHEMA {schema}",
        f"CREATE TABLE {schema}.{TABLE} (applied pg_lsn NOT NULL)",
        f"INSERT INTO {schema}.{TABLE} VALUES ('0/0')",  # noqa: S608 - quoted
    )


async def remove(session: PsqlSession, name: str) -> None:
    await session.run(f"DROP SCHEMA IF EXISTS {identifier(name)} CASCADE")


class SourceWriter:
    """`applied`: the position of the instance up to which the source has everything.

    Some transactions of the instance become one at the source, unless it is to do so `singly`.
    """

    def __init__(
        self, session: PsqlSession, name: str, *, is_replica: bool, singly: bool = False
    ) -> None:
        self.applied = 0
        self._changes_max = 1 if singly else CHANGES_MAX
        self._session = session
        self._table = f"{identifier(name)}.{TABLE}"
        self._is_replica = is_replica
        self._tables: statements.Tables = {}
        self._waiting: list[str] = []
        self._waiting_bytes = 0
        self._changed: list[str | None] = []
        self._changes = 0
        self._reached = 0
        self._committed_at = 0.0

    async def begin(self) -> None:
        """Learns what is at the source."""
        with refusals():
            role = (writable.REPLICA,) if self._is_replica else ()
            await self._session.run(*SETTINGS, *role)
            self._tables = await writable.tables(self._session)
            found = await self._session.rows(f"SELECT to_json(applied::text) FROM {self._table}")  # noqa: S608 - quoted
            if len(found) != 1:
                raise ReverseSyncEndedError("its position was removed at the source")
            self.applied = change_stream.position(str(found[0]))

    async def add(self, change: Change) -> None:
        text = statements.statement(self._tables, change, len(self._changed))
        relation = change.relations[0] if isinstance(change, Truncate) else change.relation
        is_counted = not isinstance(change, Truncate)
        self._changed.append(shown(relation.schema, relation.name) if is_counted else None)
        if not self._changes:
            self._waiting.append("BEGIN")
            if not self._is_replica:
                self._waiting.append("SET CONSTRAINTS ALL DEFERRED")
        self._waiting.append(text)
        self._waiting_bytes += len(text)
        self._changes += 1
        if len(self._waiting) >= STATEMENTS_MAX or self._waiting_bytes >= BYTES_MAX:
            await self._send()

    async def committed(self, end: int) -> None:
        """At the end of a transaction of the instance."""
        self._reached = end
        if self._changes >= self._changes_max:
            await self.commit()

    async def reached(self, position: int) -> None:
        """Between two transactions, where nothing that concerns the source was written before."""
        behind = position - self.applied
        is_due = time.monotonic() - self._committed_at > POSITION_EVERY_S
        if behind > POSITION_BYTES or (behind > 0 and is_due):
            self._reached = position
            self._waiting.append("BEGIN")
            await self._commit()

    async def commit(self) -> None:
        """What was added belongs to transactions that are complete."""
        if self._changes:
            await self._commit()

    async def _commit(self) -> None:
        former, reached = map(change_stream.written, (self.applied, self._reached))
        number = len(self._changed)
        self._waiting.append(
            f"UPDATE {self._table} SET applied = '{reached}' WHERE applied = '{former}'"  # noqa: S608 - quoted
            f" RETURNING {number}"
        )
        self._changed.append(self._table)
        await self._send()
        with refusals():
            await self._session.run("COMMIT")
        self.applied, self._changes = self._reached, 0
        self._committed_at = time.monotonic()

    async def _send(self) -> None:
        waiting, changed = self._waiting, self._changed
        self._waiting, self._waiting_bytes, self._changed = [], 0, []
        with refusals():
            # In one message, and not each by itself: a source may be far away.
            found = {int(each) for each in await self._session.lines(" \\;\n".join(waiting))}
        for number, name in enumerate(changed):
            if name is None or number in found:
                continue
            if name == self._table:
                raise MigrationError("another connection has written to the source; it is asked")
            raise ReverseSyncEndedError(
                f"a row of {name} that was changed in the instance is not at the source: somebody "
                "else has written there"
            )

    async def set_sequences(self, values: Sequence[tuple[TableSequence, int]]) -> None:
        """Between two transactions."""
        texts = [
            f"SELECT pg_catalog.setval({literal(each.sql)}, {value}, true)"
            for each, value in values
        ]
        for first in range(0, len(texts), STATEMENTS_MAX):
            with refusals():
                await self._session.lines(" \\;\n".join(texts[first : first + STATEMENTS_MAX]))


@contextlib.contextmanager
def refusals() -> Iterator[None]:
    """What a source refuses for good ends it: it would refuse that again."""
    try:
        yield
    except QueryError as error:
        said = str(error)
        if _STATE.match(said) is None or _PASSING.match(said) is not None:
            raise
        what = said.partition(": ")[2]
        raise ReverseSyncEndedError(f"the source refused a change: {what}") from error
