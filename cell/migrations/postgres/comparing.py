"""Whether the instance has what the source has, table by table."""

import asyncio
import re
import time
from collections.abc import Callable, Coroutine, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from typing import Any, TypeVar

from cell.migrations.errors import MigrationError
from cell.migrations.postgres.psql import PsqlSession
from cell.migrations.postgres.tables import ALIKE, SourceTable, digest, tables
from cell.migrations.postgres.target import PostgresTarget
from cell.migrations.report import Difference, verification
from cell.migrations.together import together

Opened = Callable[[], AbstractAsyncContextManager[PsqlSession]]
Found = TypeVar("Found")
SLOWER_TIMES = 10
ABSENT = "no such table"
PART = re.compile(r'"(?:[^"]|"")*"|[^."]+')
LARGE_OBJECTS = """
SELECT json_build_array(count(*),
    coalesce(sum(pg_catalog.hashtextextended(encode(lo_get(oid), 'hex'), 0)::numeric), 0)::text)
FROM pg_catalog.pg_largeobject_metadata
"""


async def compared(
    source: Opened,
    target: PostgresTarget,
    expected: Sequence[SourceTable],
    *,
    jobs: int,
    silence_s: float,
) -> dict[str, Any]:
    """By counts, and digests of what is in the rows; each session of the source sees the same.

    A source may take ten times as long for a table as the instance, and `silence_s` besides.
    """
    waiting = list(expected)
    differences: list[Difference] = []
    rows = 0

    async def compare() -> None:
        nonlocal rows
        async with source() as there, target.session() as here:
            await here.run(*ALIKE)
            while waiting:
                table = waiting.pop(0)
                far, near = await _both(digest(there, table), digest(here, table), silence_s)
                rows += far[0]
                if far != near:
                    told = (_told(far, near), _told(near, far))
                    differences.append(Difference(table.shown, *told))

    await together(*(compare() for _ in range(min(jobs, len(waiting)))))
    async with source() as there, target.session() as here:
        asked = there.value(LARGE_OBJECTS), here.value(LARGE_OBJECTS)
        far, near = await _both(*asked, silence_s)
        if far != near:
            told = (_told(tuple(far), tuple(near)), _told(tuple(near), tuple(far)))
            differences.append(Difference("large objects", *told))
    return verification(len(expected), rows, sorted(differences, key=lambda each: each.object))


async def _both(
    far: Coroutine[Any, Any, Found], near: Coroutine[Any, Any, Found], silence_s: float
) -> tuple[Found, Found]:
    began = time.monotonic()
    asking = asyncio.create_task(far)
    try:
        own = await near
        within_s = silence_s + SLOWER_TIMES * (time.monotonic() - began)
        try:
            async with asyncio.timeout(within_s):
                return await asking, own
        except TimeoutError as error:
            raise MigrationError(
                f"the source did not answer within {within_s:.0f} s what is in its rows"
            ) from error
    finally:
        asking.cancel()
        await asyncio.gather(asking, return_exceptions=True)


def _told(own: tuple[int, str], other: tuple[int, str]) -> str:
    """Counts where they differ; else what tells that the rows do."""
    return f"{own[0]} rows" if own[0] != other[0] else f"{own[0]} rows, digest {own[1]}"


async def counted(target: PostgresTarget, expected: Mapping[str, int]) -> dict[str, Any]:
    """How many rows each table has, against those of a file; names are as they stand there."""
    rows: dict[str, int] = {}
    async with target.session() as here:
        await here.run(*ALIKE)
        found = await tables(here)
        for table in found:
            query = f"SELECT to_json(count(*)) FROM ONLY {table.sql}"  # noqa: S608 - quoted
            rows[table.sql] = int(await here.value(query))
    differences = []
    for name, count in expected.items():
        held = rows.get(quoted(name))
        if held != count:
            told = ABSENT if held is None else f"{held} rows"
            differences.append(Difference(name, f"{count} rows", told))
    return verification(len(found), sum(rows.values()), differences)


def quoted(name: str) -> str:
    """A name as pg_dump writes it, which quotes only what needs it."""
    parts = PART.findall(name)
    return ".".join(each if each.startswith('"') else f'"{each}"' for each in parts)
