"""The program that reads what was sent, in the sandbox of the instance: started and listened to."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Any

import orjson

from cell.engines.duckdb import memory_limits, threads
from cell.migrations import spool
from cell.migrations.errors import MigrationError
from cell.runtime.confined_tools import ConfinedTool, ConfinedToolError, Toolbox
from cell.runtime.confinement import Mount
from cell.runtime.engine_folders import INSIDE
from cell.runtime.own_threads import in_own_thread
from instance_services.table_files.kinds import FRAME_BYTES_MAX

PROGRAM = "instance_services.table_files"
CUT_OFF = "what reads the file ended without a word"


class FileReader:
    """Sees `folder`, with the file and what was unpacked of it, and reads only."""

    def __init__(self, toolbox: Toolbox, folder: Path) -> None:
        self._toolbox = toolbox
        self._folder = folder
        self._lent: set[Path] = set()

    def _lend(self) -> None:
        owner = self._toolbox.host.owner(self._toolbox.site)
        for path in {self._folder, *self._folder.iterdir()} - self._lent:
            spool.lend(path, owner)
            self._lent.add(path)

    @contextlib.asynccontextmanager
    async def started(
        self, act: str, *words: str, mounts: Sequence[Mount] = ()
    ) -> AsyncIterator["Telling"]:
        """Ends with the block. What it complains of is MigrationError once it was listened to."""
        host, size = self._toolbox.host, self._toolbox.size
        await in_own_thread(self._lend)
        python = await host.python()
        process_bytes, engine_bytes = memory_limits(size.memory_bytes)
        inside = INSIDE / "spool" if host.hides_files else self._folder
        argv = [
            *(python.program, "-P", "-m", PROGRAM, act, "--folder", str(inside)),
            *("--memory-bytes", str(engine_bytes), "--process-bytes", str(process_bytes)),
            *("--threads", str(threads(size.vcpu)), *words),
        ]
        environment = {**python.environment, "PYTHONDONTWRITEBYTECODE": "1"}
        seen = (Mount(self._folder, INSIDE / "spool", writable=False), *mounts)
        pipe = asyncio.subprocess.PIPE
        tool = await self._toolbox.start(argv, environment, stdout=pipe, mounts=seen)
        try:
            yield Telling(tool)
        finally:
            await tool.end()


class Telling:
    """What it says: lines of JSON, and blocks of bytes between them."""

    def __init__(self, tool: ConfinedTool) -> None:
        self._tool = tool

    async def line(self) -> dict[str, Any]:
        """Raises MigrationError."""
        await asyncio.sleep(0)
        try:
            said = await self._tool.output.readline()
            if not said:
                await self.explain()
            document = orjson.loads(said)
        except ValueError as error:
            raise MigrationError("what reads the file gave an answer that is too long") from error
        if not isinstance(document, dict):
            raise MigrationError(CUT_OFF)
        return document

    async def blocks(self) -> AsyncIterator[bytes]:
        """Until the last. Raises MigrationError."""
        while True:
            try:
                size = int(await self._tool.output.readline() or -1)
                if size == 0:
                    return
                if 0 < size <= FRAME_BYTES_MAX:
                    yield await self._tool.output.readexactly(size)
                    # What has arrived already is read without waiting.
                    await asyncio.sleep(0)
                    continue
            except (ValueError, asyncio.IncompleteReadError):
                pass
            await self.explain()

    async def until_ended(self) -> None:
        """Raises MigrationError with what it complained of, if it did not end well."""
        try:
            await self._tool.ended()
        except ConfinedToolError as error:
            raise MigrationError(str(error).splitlines()[-1]) from error

    async def explain(self) -> None:
        """Raises MigrationError with what it complained of."""
        await self.until_ended()
        raise MigrationError(CUT_OFF)
