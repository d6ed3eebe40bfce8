"""All of a running server's data, as of one moment, by the engine's own tools."""

import asyncio
import contextlib
import hashlib
import os
import re
import time
from collections.abc import Callable, Coroutine, Sequence
from pathlib import Path
from typing import Any

from cell.migrations.errors import MigrationError
from cell.migrations.postgres import dump_files, psql
from cell.migrations.postgres.source import REPEATABLE, PostgresSource
from cell.migrations.postgres.tables import (
    ALIKE,
    SourceTable,
    materialized,
    sequences,
    set_state,
    state_of,
)
from cell.migrations.postgres.target import PostgresTarget
from cell.migrations.spool import lend
from cell.migrations.together import together
from cell.runtime.confined_tools import ConfinedTool, ConfinedToolError
from cell.runtime.own_threads import in_own_thread

# So many small tables go through one pair of tools.
BATCH_TABLES_MAX = 100
BATCH_BYTES = 8 * 2**20
SCHEMA_FILE = "schema"
SCHEMA_BYTES_MAX = 256 * 2**20
LOOK_EVERY_S = 5.0
LARGE_OBJECTS = "SELECT to_json(count(*)) FROM pg_catalog.pg_largeobject_metadata"
# Each dump has another.
KEYS = re.compile(rb"^\\(un)?restrict .*$", re.MULTILINE)
# One psql reads tables from one stream, in which this ends each of them.
END = r"\echo '\\.'"


def batches(tables: Sequence[SourceTable]) -> list[list[SourceTable]]:
    """Large tables each by itself, first; small ones together."""
    made: list[list[SourceTable]] = []
    gathered, size_bytes = [], 0
    for table in tables:
        if table.size_bytes > BATCH_BYTES:
            made.append([table])
            continue
        gathered.append(table)
        size_bytes += table.size_bytes
        if len(gathered) == BATCH_TABLES_MAX or size_bytes > BATCH_BYTES:
            made.append(gathered)
            gathered, size_bytes = [], 0
    return [*made, gathered] if gathered else made


class SourceCopy:
    """`done` is told of tables that have been copied. `folder` is the cell's, for a dump."""

    def __init__(
        self,
        source: PostgresSource,
        target: PostgresTarget,
        snapshot: str,
        folder: Path,
        done: Callable[[Sequence[SourceTable]], None],
        *,
        jobs: int,
        silence_s: float,
    ) -> None:
        self._source = source
        self._target = target
        self._snapshot = snapshot
        self._folder = folder
        self._done = done
        self._jobs = jobs
        self._silence_s = silence_s

    async def schema(self) -> None:
        """Dumps the schema into a file; then makes all that tables need to be filled."""
        dumping = self._dump(["-Fc", "--schema-only"], self._folder / SCHEMA_FILE)
        await self._watched(dumping, "nothing of the schema came")
        await self._restore("pre-data")

    async def indexes(self) -> None:
        """And constraints, triggers, policies: what is made once the rows are there."""
        await self._restore("post-data")

    async def rows(self, tables: Sequence[SourceTable]) -> None:
        waiting = batches(tables)
        copiers = [self._copy_all(waiting) for _ in range(min(self._jobs, len(waiting)))]
        await self._watched(together(*copiers), "no row was copied")

    async def large_objects(self) -> None:
        async with self._source.session() as source:
            if not int(await source.value(LARGE_OBJECTS)):
                return
        words = ["-Fc", "--data-only", "--exclude-table-data=*.*", f"--snapshot={self._snapshot}"]
        restoring = ["--no-owner", "--no-acl", "--exit-on-error", "-d", self._target.database]
        piping = self._piped(
            [self._target.program("pg_dump"), *words],
            [self._target.program("pg_restore"), *restoring],
        )
        await self._watched(piping, "nothing of large objects came")

    async def finish(self) -> None:
        """What is made of the rows, and sequences as they are by now."""
        await self._watched(copy_sequences(self._source, self._target), "nothing of sequences came")
        await refresh(self._source, self._target)

    async def _copy_all(self, waiting: list[list[SourceTable]]) -> None:
        while waiting:
            batch = waiting.pop(0)
            await copy_tables(self._source, self._target, batch, self._snapshot)
            self._done(batch)

    async def _watched(self, work: Coroutine[Any, Any, None], silence: str) -> None:
        """Ends what waits for a source that says nothing any more."""
        watch = asyncio.create_task(self._watch(silence))
        working = asyncio.create_task(work)
        try:
            await asyncio.wait((working, watch), return_when=asyncio.FIRST_COMPLETED)
            await (watch if watch.done() else working)
        finally:
            working.cancel()
            watch.cancel()
            await asyncio.gather(working, watch, return_exceptions=True)

    async def _watch(self, silence: str) -> None:
        seen, since = -1, time.monotonic()
        while True:
            received = self._source.conduit.received_bytes
            if received != seen:
                seen, since = received, time.monotonic()
            elif time.monotonic() - since > self._silence_s:
                raise MigrationError(
                    f"{silence} for {self._silence_s:.0f} s; a lock may be held there"
                )
            await asyncio.sleep(min(LOOK_EVERY_S, self._silence_s))

    async def _dump(self, words: list[str], path: Path) -> None:
        words = [
            self._target.program("pg_dump"),
            *words,
            f"--snapshot={self._snapshot}",
            *LEAVES_OUT,
        ]
        await dump(self._source, words, path)
        host = self._target.toolbox.host
        lend(path, host.owner(self._target.instance.site))

    async def _restore(self, section: str) -> None:
        path = self._folder / SCHEMA_FILE
        await dump_files.restore(self._target, path, [f"--section={section}"], jobs=self._jobs)

    async def _piped(self, sending: list[str], receiving: list[str]) -> None:
        with self._source.explained():
            await piped(self._source, self._target, sending, receiving)


LEAVES_OUT = ("--no-publications", "--no-subscriptions", "--no-security-labels")


async def dump(source: PostgresSource, words: list[str], path: Path) -> None:
    """Of a schema, which no honest source has gigabytes of."""
    place = source.place()
    with source.explained():
        pipe = asyncio.subprocess.PIPE
        tool = await source.toolbox.start(
            words, place.environment, stdout=pipe, mounts=place.mounts
        )
        try:
            with path.open("wb") as file:
                while block := await tool.output.read(1 << 20):
                    await in_own_thread(file.write, block)
                    if file.tell() > SCHEMA_BYTES_MAX:
                        raise MigrationError("the schema of the source is too large")
            await tool.ended()
        finally:
            await tool.end()


async def copy_sequences(source: PostgresSource, target: PostgresTarget) -> None:
    """As they are by now: neither snapshots nor replication carry them."""
    async with source.session() as there, target.session() as here:
        for each in await sequences(there):
            await set_state(here, each, await state_of(there, each))


async def refresh(source: PostgresSource, target: PostgresTarget) -> None:
    """Fills the materialized views that are filled at the source."""
    async with source.session() as far, target.session() as near:
        filled = dict(await materialized(far))
        for name, _ in await materialized(near):
            if filled.get(name):
                await near.run(f"REFRESH MATERIALIZED VIEW {name}")


async def schema_digest(source: PostgresSource, target: PostgresTarget, folder: Path) -> str:
    """Changes with the schema of the source."""
    path = folder / f"{SCHEMA_FILE}.sql"
    words = [target.program("pg_dump"), "--schema-only", "--no-comments", *LEAVES_OUT]
    await dump(source, words, path)
    content = await in_own_thread(path.read_bytes)
    path.unlink()
    return hashlib.sha256(KEYS.sub(b"", content)).hexdigest()


async def copy_tables(
    source: PostgresSource,
    target: PostgresTarget,
    tables: Sequence[SourceTable],
    snapshot: str | None = None,
    *,
    replaces: bool = False,
) -> None:
    """In one transaction on each side. New tables are filled, or what is in them is replaced."""
    begin = [REPEATABLE]
    if snapshot is not None:
        begin.append(f"SET TRANSACTION SNAPSHOT '{snapshot}'")
    empty, how = ("DELETE FROM ONLY", "") if replaces else ("TRUNCATE ONLY", " (FREEZE)")
    sending = [target.program("psql"), *psql.WORDS, *_commands("; ".join(ALIKE), *begin)]
    receiving = [target.program("psql"), *psql.WORDS, *_commands("; ".join(ALIKE), "BEGIN")]
    for table in tables:
        columns = f" ({table.listed_columns})" if table.columns else ""
        # Rows without a column have no text.
        sending += _commands(f"COPY {table.sql}{columns} TO STDOUT", END)
        receiving += _commands(f"{empty} {table.sql}", f"COPY {table.sql}{columns} FROM STDIN{how}")
    receiving += _commands("COMMIT")
    with source.explained():
        await piped(source, target, sending, receiving)


def _commands(*statements: str) -> list[str]:
    return [word for each in statements for word in ("-c", each)]


async def piped(
    source: PostgresSource, target: PostgresTarget, sending: list[str], receiving: list[str]
) -> None:
    """What one tool says about the source is what the other is told. Raises ConfinedToolError."""
    reading, writing = os.pipe()
    tools: list[ConfinedTool] = []
    far, near = source.place(), target.place()
    try:
        try:
            started = source.toolbox.start(
                sending, far.environment, stdout=writing, mounts=far.mounts
            )
            tools.append(await started)
            tools.append(await target.toolbox.start(receiving, near.environment, stdin=reading))
        finally:
            os.close(reading)
            os.close(writing)
        ends = await asyncio.gather(*(each.ended() for each in tools), return_exceptions=True)
        # Whoever receives ends well if the sender fails; the other way around a pipe is broken.
        failed = [each for each in reversed(ends) if isinstance(each, BaseException)]
        told = [each for each in failed if "Broken pipe" not in str(each)]
        if failed:
            raise (told or failed)[0]
    finally:
        with contextlib.suppress(ConfinedToolError):
            for each in tools:
                await each.end()
