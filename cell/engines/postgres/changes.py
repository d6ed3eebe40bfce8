"""What has changed in a cluster's files since a copy of it, as its server's summaries of WAL say.

Only tables and indexes themselves are told apart by blocks. Free space maps are not in the WAL, and
what is cleared in a visibility map is not in the summaries of every version: with the server's own
incremental backups, version 17.10 gives back rows that were deleted.
"""

import array
import asyncio
import re
import sys
import time
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Final

import psycopg

from cell.engines.increments import CopyMark
from cell.engines.postgres.roles import Connection
from cell.runtime import patches
from cell.runtime.own_threads import in_quiet_thread

# They are written when a checkpoint begins, as the one of a backup; a busy server may be behind.
SUMMARIZED_WITHIN_S: Final = 60.0
LOOK_AGAIN_S: Final = 0.05
# Of relations in the folders `base` and `global`; nobody but a superuser makes others.
TABLESPACES: Final = [1663, 1664]
SEGMENT_BLOCKS: Final = patches.BLOCKS_MAX
RELATION: Final = re.compile(r"(?:base/(\d{1,10})|global)/(\d{1,10})(?:\.(\d{1,6}))?")
# Of relations that changed, by the gigabyte: whoever makes and drops tables all day could fill the
# cell's memory with them.
CHANGED_MAX: Final = 100_000
# Where so much has changed, a patch is no smaller than the file.
WHOLE_FROM: Final = 0.9
SUMMARIES = """
SELECT (start_lsn - '0/0'::pg_catalog.pg_lsn)::int8, (end_lsn - '0/0'::pg_catalog.pg_lsn)::int8
FROM pg_catalog.pg_available_wal_summaries() WHERE tli = %s ORDER BY start_lsn, end_lsn
"""
# Blocks of one gigabyte together, as four bytes each.
CONTENTS = """
SELECT reldatabase::int8, relfilenode::int8, is_limit_block,
    pg_catalog.string_agg(pg_catalog.int4send(relblocknumber::int4), '')
FROM pg_catalog.pg_wal_summary_contents(
    %s, '0/0'::pg_catalog.pg_lsn + %s::numeric, '0/0'::pg_catalog.pg_lsn + %s::numeric)
WHERE relforknumber = 0 AND reltablespace = ANY (%s::oid[])
GROUP BY reldatabase, relfilenode, is_limit_block, relblocknumber / 131072 LIMIT %s
"""


class UnknownChangesError(Exception):
    """The server does not say what has changed since then; the text says why."""


@dataclass
class ChangedBlocks:
    """By database and file number. Shared relations are those of the database 0.

    From its limit on, a relation was cut off or begun anew meanwhile. A limit of the file number 0
    is of a whole database.
    """

    limits: dict[tuple[int, int], int] = field(default_factory=dict)
    # By gigabyte, a bit for each block.
    changed: dict[tuple[int, int, int], bytearray] = field(default_factory=dict)

    @property
    def count(self) -> int:
        return len(self.limits) + len(self.changed)

    def add(self, rows: Iterable[tuple[int, int, bool, bytes]]) -> None:
        for database, relation, is_limit, content in rows:
            numbers = array.array("I", content)
            if sys.byteorder == "little":
                numbers.byteswap()
            whose = (database, relation)
            if is_limit:
                self.limits[whose] = min(self.limits.get(whose, 1 << 32), *numbers)
                continue
            bits = self.changed.setdefault((*whose, numbers[0] // SEGMENT_BLOCKS), bytearray())
            bits.extend(bytes(max(0, max(numbers) % SEGMENT_BLOCKS // 8 + 1 - len(bits))))
            for number in numbers:
                bits[number % SEGMENT_BLOCKS >> 3] |= 1 << (number & 7)

    def needed(self, name: str, blocks: int, former: int | None) -> list[int] | None:
        """Which of a file's blocks to copy, of which `former` are in the copy before it.

        None: all of it. A block is copied where it may have changed, and so is what no copy has.
        """
        found = RELATION.fullmatch(name)
        if found is None or former is None or blocks > SEGMENT_BLOCKS:
            return None
        database, relation, segment = (int(each or 0) for each in found.groups())
        if (database, 0) in self.limits:
            return None
        limit = self.limits.get((database, relation), 1 << 32) - segment * SEGMENT_BLOCKS
        if limit <= 0:
            return None
        kept = min(blocks, former, limit)
        bits = self.changed.get((database, relation, segment), b"")
        numbers = [number for number in _numbers(bits) if number < kept]
        numbers.extend(range(kept, blocks))
        return None if len(numbers) > blocks * WHOLE_FROM else numbers


def _numbers(bits: bytes | bytearray) -> Iterable[int]:
    for place, byte in enumerate(bits):
        if byte:
            yield from (place * 8 + bit for bit in range(8) if byte >> bit & 1)


async def since(connection: Connection, former: CopyMark, now: CopyMark) -> ChangedBlocks:
    """Between the beginnings of two copies. Raises UnknownChangesError."""
    if former.data_id != now.data_id or former.system_id != now.system_id:
        raise UnknownChangesError("other data took its place")
    if former.timeline != now.timeline or former.position > now.position:
        raise UnknownChangesError("its WAL is another")
    try:
        found = ChangedBlocks()
        for begins, ends in await _summaries(connection, former, now):
            left = CHANGED_MAX - found.count
            values = [now.timeline, begins, ends, TABLESPACES, left + 1]
            async with connection.cursor(binary=True) as cursor:
                await cursor.execute(CONTENTS.encode(), values)
                rows = await cursor.fetchall()
            if len(rows) > left:
                raise UnknownChangesError("too many of its tables have changed")
            await in_quiet_thread(found.add, rows)
    except psycopg.Error as error:
        if connection.closed:
            raise
        # One was removed meanwhile, or there was no room to read them.
        raise UnknownChangesError(f"the summaries of its WAL cannot be read: {error}") from error
    return found


async def _summaries(
    connection: Connection, former: CopyMark, now: CopyMark
) -> list[tuple[int, int]]:
    """Those that have everything between the two, once the server has written the last one."""
    deadline = time.monotonic() + SUMMARIZED_WITHIN_S
    while True:
        asked = await connection.execute(SUMMARIES.encode(), [now.timeline])
        rows = [(int(begins), int(ends)) for begins, ends in await asked.fetchall()]
        chosen = [each for each in rows if each[1] > former.position and each[0] < now.position]
        reached = former.position
        for begins, ends in chosen:
            if begins > reached:
                raise UnknownChangesError("summaries of its WAL are missing")
            reached = max(reached, ends)
        if reached >= now.position:
            return chosen
        if time.monotonic() > deadline:
            raise UnknownChangesError("its WAL was not summarized in time")
        await asyncio.sleep(LOOK_AGAIN_S)
