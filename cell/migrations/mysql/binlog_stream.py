"""The binary log of a source, as it sends it to a replica: events from a GTID position on."""

import contextlib
import re
import secrets
import struct
import zlib
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Final

from cell.engines.mysql.binary_log import EVENT
from cell.engines.mysql.replayed_events import CHECKSUM_BYTES
from cell.engines.wal_sources import LogPlace
from cell.migrations.conduit import Conduit
from cell.migrations.errors import FollowError, MigrationError, SourceUnreachableError
from cell.migrations.mysql import session
from cell.migrations.mysql.login import told
from cell.migrations.mysql.session import (
    BROKE_OFF,
    EOF,
    EOF_BYTES_MAX,
    ERROR,
    OK,
    UNREADABLE,
    PacketTooLongError,
    SourceSession,
    count_of,
    literal,
)
from gateway.protocols import mysql_wire as wire

DUMP: Final = struct.Struct("<BIHI")
DUMP_COMMAND: Final = 0x12
ROTATE, FORMAT, HEARTBEAT = 4, 15, 27
# Where a file begins, and what follows the position in an event that names one.
FILE_BEGINS, PLACE_BYTES = 4, 8
EVENT_BYTES_MAX: Final = 15 * 2**20
TOO_LONG: Final = f"a change of the source has more than {EVENT_BYTES_MAX // 2**20} MiB"
BATCH_EVENTS_MAX: Final = 2000
SILENCE_S: Final = 30.0
NAME: Final = re.compile(r".{1,500}\.(\d{1,10})", re.ASCII | re.DOTALL)
# Of servers' ids, those that people hardly give: one that is there twice ends the other's.
IDS_FROM, IDS = 2**31, 2**30
LOST, SAME_ID = 1236, "same server"
GONE: Final = (
    "the source does not have its binary log from there on any more, or does not know the "
    "position; keep it for longer (binlog_expire_logs_seconds), and begin anew: {said}"
)
# With the GTIDs that only MariaDB has, and a sign of life each second.
BEFORE: Final = (
    "SET @mariadb_slave_capability = 4, @master_binlog_checksum = @@GLOBAL.binlog_checksum",
    "SET @master_heartbeat_period = 1000000000",
    "SET @slave_gtid_strict_mode = 0, @slave_gtid_ignore_duplicates = 0",
)


@dataclass(frozen=True)
class LoggedEvent:
    """`whole` is as it came; `begins` and `ends` are places in the source's files."""

    kind: int
    server: int
    flags: int
    begins: LogPlace
    ends: LogPlace
    body: bytes
    whole: bytes
    has_checksum: bool


async def place_of(source: SourceSession) -> LogPlace:
    """Where its log ends: in a transaction, as of the moment that it sees."""
    name, offset = await _end(source)
    return LogPlace(file_number(name), offset)


async def gtid_of(source: SourceSession) -> str:
    """Of the moment that a transaction sees."""
    name, offset = await _end(source)
    (gtid,) = await source.row(f"SELECT BINLOG_GTID_POS({literal(name)}, {offset})", 1)
    if gtid is None:
        raise MigrationError(
            "the source has removed its binary log since the copy began; keep it for longer "
            "(binlog_expire_logs_seconds), and begin anew"
        )
    return gtid


async def _end(source: SourceSession) -> tuple[str, int]:
    """A file's name, and how far it goes."""
    rows = await source.rows("SHOW STATUS LIKE 'binlog_snapshot_%'", 2)
    found = {str(name).lower(): value for name, value in rows}
    name, offset = found.get("binlog_snapshot_file"), found.get("binlog_snapshot_position")
    if not name or not offset:
        raise MigrationError("the source has no binary log; set log_bin there")
    return str(name), count_of(offset)


def file_number(name: str) -> int:
    found = NAME.fullmatch(name)
    if found is None:
        raise MigrationError(UNREADABLE)
    return int(found[1])


class BinlogStream:
    def __init__(self, source: SourceSession) -> None:
        self._source = source
        self._silence_s = max(source.silence_s, SILENCE_S)
        self._file = 0
        self._at = FILE_BEGINS
        self._has_checksums: bool | None = None

    async def begin(self, gtid: str) -> None:
        source = self._source
        await source.run(*BEFORE, f"SET @slave_connect_state = {literal(gtid)}")
        number = IDS_FROM + secrets.randbelow(IDS)
        source.ask(DUMP.pack(DUMP_COMMAND, FILE_BEGINS, 0, number))

    async def events(self) -> list[LoggedEvent]:
        """One at least, and those that have come with it."""
        found: list[LoggedEvent] = []
        while not found or (self._source.has_packet and len(found) < BATCH_EVENTS_MAX):
            try:
                packet = await self._source.packet(self._silence_s, EVENT_BYTES_MAX)
            except PacketTooLongError as error:
                raise FollowError(TOO_LONG) from error
            found.append(self._event(packet.payload))
        return found

    def _event(self, payload: bytes) -> LoggedEvent:
        kind = payload[:1]
        if kind == bytes((ERROR,)):
            raise _refused(wire.parse_error(payload))
        if kind == bytes((EOF,)) and len(payload) < EOF_BYTES_MAX:
            raise SourceUnreachableError(BROKE_OFF)
        whole = payload[1:]
        if kind != bytes((OK,)) or len(whole) < EVENT.size:
            raise FollowError(UNREADABLE)
        _, number, server, length, ends, flags = EVENT.unpack_from(whole)
        if length != len(whole):
            raise FollowError(UNREADABLE)
        body = self._body(number, whole)
        if number in {ROTATE, HEARTBEAT}:
            self._move(number, body, ends)
            begins = LogPlace(self._file, self._at)
        else:
            # What is made for this connection has no place of its own.
            begins = LogPlace(self._file, max(self._at, ends - length))
            self._at = max(self._at, ends)
        places = (begins, LogPlace(self._file, self._at))
        has_checksum = len(body) < len(whole) - EVENT.size
        return LoggedEvent(number, server, flags, *places, body, whole, has_checksum)

    def _move(self, kind: int, body: bytes, ends: int) -> None:
        if kind == ROTATE:
            name, at = body[PLACE_BYTES:], int.from_bytes(body[:PLACE_BYTES], "little")
        else:
            name, at = body, ends
        number = file_number(name.decode("latin-1"))
        self._at = at if number != self._file else max(self._at, at)
        self._file = number

    def _body(self, kind: int, whole: bytes) -> bytes:
        """Without the checksum, which is looked at."""
        content = whole[:-CHECKSUM_BYTES]
        is_right = zlib.crc32(content) == int.from_bytes(whole[-CHECKSUM_BYTES:], "little")
        if kind == FORMAT:
            # It says whether those after it have one, and always has the room for it.
            self._has_checksums = content[-1:] == b"\x01"
            return content[EVENT.size :]
        if self._has_checksums is None:
            return (content if is_right else whole)[EVENT.size :]
        if not self._has_checksums:
            return whole[EVENT.size :]
        if not is_right:
            raise FollowError("an event of the source is damaged: its checksum does not fit")
        return content[EVENT.size :]


def _refused(said: wire.ServerError) -> MigrationError:
    why = told(said)
    if said.code == LOST and SAME_ID not in said.message:
        return FollowError(GONE.format(said=why))
    return SourceUnreachableError(f"the source ended the stream: {why}")


@contextlib.asynccontextmanager
async def opened(conduit: Conduit, silence_s: float, gtid: str) -> AsyncIterator[BinlogStream]:
    async with session.opened(conduit, silence_s) as source:
        stream = BinlogStream(source)
        await stream.begin(gtid)
        yield stream
