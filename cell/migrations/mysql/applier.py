"""Takes the events of a source's binary log into an instance, transaction by transaction.

Only changes of rows, of the source's one database, and TRUNCATE. Statements are never run: those
that cannot concern that database are passed over, and any other ends the sync.
"""

import re
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from cell.engines.mysql.binary_log import GTID
from cell.engines.mysql.replayed_events import (
    QUERY,
    STATEMENT_BYTES_MAX,
    query,
    words_of,
)
from cell.engines.mysql.row_events import NO_FOREIGN_KEYS, ROWS, TABLE_MAP, RowsEvent, TableMap
from cell.engines.mysql.row_values import EventReader, MalformedEventError
from cell.migrations.errors import FollowError
from cell.migrations.mysql import changes
from cell.migrations.mysql.binlog_stream import LoggedEvent
from cell.migrations.mysql.changes import TargetTable
from cell.migrations.mysql.sync_target import SyncTarget
from cell.migrations.report import bounded

XID: Final = 16
# Marks of files, values of statements that are looked at themselves, texts for people.
SILENT: Final = frozenset({3, 4, 5, 13, 14, 15, 27, 160, 161, 163, 164})
IGNORABLE: Final = 0x80
STANDALONE, PREPARED, ENDS_PREPARED = 0x01, 0x40, 0x80
GROUP: Final = re.compile(r"(\d{1,10})-(\d{1,10})-(\d{1,20})", re.ASCII)
# Of tables that the map of a transaction may name, and how seldom a position alone is written.
TABLES_MAX: Final = 10_000
DOMAINS_MAX: Final = 500
KEEP_EVERY_S: Final = 5.0
_NAME: Final = rb"(?:`((?:[^`]|``)+)`|([\w$\x80-\xff]+))"
_TRUNCATE: Final = re.compile(
    rb"\s*TRUNCATE\s+(?:TABLE\s+)?(?:" + _NAME + rb"\s*\.\s*)?" + _NAME + rb"\s*;?\s*",
    re.IGNORECASE,
)
# They make, change and remove nothing that is followed.
_HARMLESS: Final = re.compile(
    rb"\s*(?:GRANT|REVOKE|(?:CREATE|ALTER|DROP|RENAME)\s+(?:OR\s+REPLACE\s+)?(?:USER|ROLE)"
    rb"|SET\s+(?:PASSWORD|DEFAULT\s+ROLE)|(?:ANALYZE|OPTIMIZE|CHECK)\s+(?:LOCAL\s+"
    rb"|NO_WRITE_TO_BINLOG\s+)?TABLES?|FLUSH|(?:CREATE|DROP)\s+(?:OR\s+REPLACE\s+)?TEMPORARY"
    rb"|SAVEPOINT)\b",
    re.IGNORECASE,
)
SHOWN_CHARACTERS: Final = 60


@dataclass
class _Group:
    domain: int
    server: int
    number: int
    is_statement: bool


class Applier:
    """`changed` names what was changed last; whoever looks at it empties it. For one thread."""

    def __init__(self, database: str, target: SyncTarget) -> None:
        self._database = database
        self._target = target
        self._positions: dict[int, tuple[int, int]] = {}
        self._group: _Group | None = None
        self._tables: dict[int, TableMap | None] = {}
        self._has_changes = False
        self._kept_at = 0.0
        self.changed: str | None = None

    @property
    def is_between(self) -> bool:
        """Whether no transaction has begun that has not ended."""
        return self._group is None

    @property
    def gtid(self) -> str:
        return ",".join(
            f"{domain}-{server}-{number}"
            for domain, (server, number) in sorted(self._positions.items())
        )

    def begin(self) -> None:
        """From where the instance is."""
        self._target.open()
        self._group, self._has_changes = None, False
        self._tables.clear()
        self._positions = {
            int(domain): (int(server), int(number))
            for domain, server, number in GROUP.findall(self._target.gtid)
        }

    def take(self, events: Sequence[LoggedEvent]) -> None:
        """Commits what is whole. Raises FollowError, and HeldUpError where it may work later."""
        try:
            for each in events:
                self._take(each)
        except MalformedEventError as error:
            raise FollowError(f"the source cannot be followed: {error}") from error
        if self._group is None:
            self.keep(only_changes=True)

    def keep(self, *, only_changes: bool = False) -> None:
        """What has been taken; a position without changes not each time."""
        if self._has_changes or (
            self.gtid != self._target.gtid
            and not (only_changes and time.monotonic() - self._kept_at < KEEP_EVERY_S)
        ):
            self._target.commit(self.gtid)
            self._has_changes, self._kept_at = False, time.monotonic()

    def _take(self, event: LoggedEvent) -> None:
        kind = event.kind
        if kind == GTID:
            self._begin_group(event)
        elif kind in SILENT or event.flags & IGNORABLE:
            pass
        elif self._group is None:
            raise MalformedEventError(f"an event (number {kind}) is in no transaction")
        elif kind == TABLE_MAP:
            self._map(event.body)
        elif kind in ROWS:
            self._change(RowsEvent.parse(kind, event.body))
        elif kind == XID:
            self._end_group(self._group)
        elif kind == QUERY:
            self._query(event, self._group)
        else:
            raise MalformedEventError(
                f"it logs what is not followed (an event with the number {kind}): statements, "
                "XA transactions or compressed events"
            )

    def _begin_group(self, event: LoggedEvent) -> None:
        if self._group is not None:
            raise MalformedEventError("a transaction begins within another one")
        data = EventReader(event.body)
        number, domain, flags = data.number(8), data.number(4), data.number(1)
        if flags & (PREPARED | ENDS_PREPARED):
            raise MalformedEventError("it has XA transactions, which are not followed")
        self._group = _Group(domain, event.server, number, bool(flags & STANDALONE))
        self._tables.clear()

    def _end_group(self, group: _Group) -> None:
        self._positions[group.domain] = (group.server, group.number)
        if len(self._positions) > DOMAINS_MAX:
            raise MalformedEventError("it has too many domains of GTIDs")
        self._group = None

    def _map(self, body: bytes) -> None:
        number, database, _ = TableMap.names(body)
        if len(self._tables) >= TABLES_MAX:
            raise MalformedEventError
        if database != self._database:
            # It may have whatever columns.
            self._tables[number] = None
            return
        found = TableMap.parse(body)
        found.check(self._table(found.name).columns)
        self._tables[number] = found

    def _change(self, rows: RowsEvent) -> None:
        if rows.table not in self._tables:
            raise MalformedEventError("rows are of a table that was not named")
        logged = self._tables[rows.table]
        if logged is None:
            return
        table = self._table(logged.name)
        self._target.check_keys(not rows.flags & NO_FOREIGN_KEYS)
        for each in changes.statements(table, rows.changes(logged, table.columns)):
            self._target.run(table, each)
        self._note(table)

    def _table(self, name: str) -> TargetTable:
        found = self._target.tables.get(name)
        if found is None:
            raise MalformedEventError(f"the table {name} was not there when the copy was made")
        return found

    def _note(self, table: TargetTable) -> None:
        self._has_changes = True
        self.changed = f"the table {table.name}"

    def _query(self, event: LoggedEvent, group: _Group) -> None:
        content = event.whole if event.has_checksum else event.whole + bytes(4)
        schema, statement = query(content, 0, len(content))
        if not statement:
            raise MalformedEventError
        if not group.is_statement and statement == b"COMMIT":
            return self._end_group(group)
        words = words_of(statement)
        if (found := _TRUNCATE.fullmatch(words)) is not None and self._truncated(schema, found):
            pass
        elif not _HARMLESS.match(words) and self._concerns(schema, statement):
            shown = bounded(words.decode(errors="replace").strip())[:SHOWN_CHARACTERS]
            raise FollowError(
                f"the source ran a statement that is not followed: {shown}…; begin anew when "
                "nothing is made, changed or dropped there any more"
            )
        if group.is_statement:
            self._end_group(group)
        return None

    def _truncated(self, schema: bytes, found: re.Match[bytes]) -> bool:
        """Empties the table; False of one that is not followed."""
        schema = _plain(found[1] or found[2]) or schema
        if schema != self._database.encode():
            return False
        name = _plain(found[3] or found[4]).decode(errors="replace")
        table = self._table(name)
        self._target.check_keys(wanted=False)
        self._target.run(table, changes.emptied(table))
        self._note(table)
        return True

    def _concerns(self, schema: bytes, statement: bytes) -> bool:
        """Whether it may: a database that is neither the session's nor named stays as it was."""
        name = self._database.lower()
        if not name.isascii() or len(statement) >= STATEMENT_BYTES_MAX:
            # What is longer is not looked at as a whole.
            return True
        wanted = name.encode()
        return schema.lower() == wanted or wanted in statement.lower()


def _plain(name: bytes | None) -> bytes:
    return (name or b"").replace(b"``", b"`")
