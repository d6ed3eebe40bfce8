"""Dumps of an instance that runs: its engine's own, streamed while its client reads them."""

import asyncio
import contextlib
import os
import shutil
from collections.abc import AsyncIterator
from pathlib import Path
from typing import IO

from ulid import ULID

from cell.engines.driver import DumpsByTool, DumpsToFile, EngineError
from cell.instances.copy_slots import CopySlot, locked_in_turn
from cell.instances.data_streams import FAILURES, DataStream
from cell.instances.hosted import HostedInstance
from cell.instances.reasons import for_owner
from cell.instances.supervisor import Supervisor
from cell.runtime import budget, engine_files
from cell.runtime.folder_sizes import size_bytes
from cell.runtime.own_threads import in_own_thread
from cell.runtime.tool_streams import CHUNK_BYTES, ToolStream
from cell.settings import CellSettings
from specserver import Conflict, Unavailable

DATABASE = "app"
FOLDER = "dump-"
# Of what others of the tenant copy; whoever waits holds a connection.
PLACE_WITHIN_S = 30.0
# From one chunk to the next, beside the time that an instance may be idle.
AWAKE_S = 120.0
BEGINNING_BYTES = 1 << 20
BEGINNING_WITHIN_S = 2.0
# Left to all others on the disk.
SPARE_BYTES = 256 * 2**20


class Dumps:
    def __init__(self, settings: CellSettings, supervisor: Supervisor) -> None:
        self._settings = settings
        self._supervisor = supervisor

    def suffix(self, instance: HostedInstance) -> str:
        """Of the name of a file with the dump; Conflict where there can be none now."""
        driver = instance.driver
        if not isinstance(driver, (DumpsByTool, DumpsToFile)):
            raise Conflict(f"there are no dumps of {driver.engine}")
        if not instance.usable:
            raise Conflict(f"the instance is {instance.status}; only a running one can be dumped")
        return driver.dump_suffix

    async def begin(
        self, instance: HostedInstance, stream: DataStream, database: str
    ) -> AsyncIterator[bytes]:
        """What is to be sent; Conflict where the engine refuses, before anything is."""
        stream.limit(self._settings.dump_timeout_s)
        try:
            if isinstance(instance.driver, DumpsByTool):
                return await self._by_tool(instance, stream, database or DATABASE)
            return await self._to_file(instance, stream)
        except FAILURES as error:
            raise Conflict(f"the dump failed: {for_owner(str(error))}") from error

    async def _by_tool(
        self, instance: HostedInstance, stream: DataStream, database: str
    ) -> AsyncIterator[bytes]:
        assert isinstance(instance.driver, DumpsByTool)
        site, login = instance.site, self._supervisor.login(instance)
        command = await instance.driver.dump_command(site, login, database)
        instance.touch(AWAKE_S)
        tool = await ToolStream.start(self._supervisor.host, site, command)
        stream.hold(tool.end)
        # It has found the database, and has all its locks, once it says something. What it cannot
        # read, it often says soon after; of a small dump that is known before anything is sent.
        first = await anext(tool, b"")
        with contextlib.suppress(TimeoutError, StopAsyncIteration):
            async with asyncio.timeout(BEGINNING_WITHIN_S):
                while len(first) < BEGINNING_BYTES:
                    first += await anext(tool)
        return stream.passed_on(first, _keeping_awake(instance, tool))

    async def _to_file(self, instance: HostedInstance, stream: DataStream) -> AsyncIterator[bytes]:
        folder = instance.site.directory / f"{FOLDER}{ULID()}"
        try:
            file = await self._written(instance, folder)
        finally:
            await in_own_thread(engine_files.remove, folder)
        stream.hold(file.close)
        return stream.passed_on(b"", _blocks(file))

    async def _written(self, instance: HostedInstance, folder: Path) -> IO[bytes]:
        """The dump, opened; nothing of it stays on the disk once it is closed."""
        assert isinstance(instance.driver, DumpsToFile)
        slot = CopySlot(self._supervisor.pools.copies, self._supervisor.host, instance)
        async with contextlib.AsyncExitStack() as stack:
            try:
                async with asyncio.timeout(PLACE_WITHIN_S):
                    await stack.enter_async_context(locked_in_turn(instance, slot))
            except TimeoutError:
                text = "other copies of the instance or its organization go first; try again later"
                raise Unavailable(text, headers={"Retry-After": "30"}) from None
            process = instance.process
            if process is None or not instance.usable:
                raise EngineError(f"the instance is {instance.status}")
            data_bytes = await in_own_thread(size_bytes, instance.site.data)
            if shutil.disk_usage(instance.site.directory).free < data_bytes + SPARE_BYTES:
                raise EngineError("the cell's disk has no room for a copy of the data")
            with budget.limit(instance.ceiling_bytes, process, instance.why_work_ends):
                login = self._supervisor.login(instance)
                path = await instance.driver.dump(instance.site, process, login, folder)
            return await asyncio.to_thread(_opened, path)

    @staticmethod
    def clear(instance: HostedInstance) -> None:
        """What a killed cell left."""
        for each in instance.site.directory.glob(f"{FOLDER}*"):
            engine_files.remove(each)


def _opened(path: Path) -> IO[bytes]:
    return os.fdopen(os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC), "rb")


async def _keeping_awake(
    instance: HostedInstance, chunks: AsyncIterator[bytes]
) -> AsyncIterator[bytes]:
    """Whom no connection at the gateway does."""
    async for each in chunks:
        instance.touch(AWAKE_S)
        yield each


async def _blocks(file: IO[bytes]) -> AsyncIterator[bytes]:
    while block := await asyncio.to_thread(file.read, CHUNK_BYTES):
        yield block
