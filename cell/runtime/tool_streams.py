"""Tools whose output is passed on while they write it, at the pace of whoever takes it."""

import asyncio
import contextlib
import os
import signal
from asyncio.subprocess import DEVNULL, PIPE, Process
from collections.abc import AsyncIterator
from typing import Self

import orjson

from cell.layout import Site
from cell.runtime import priority, starting, tools
from cell.runtime.host import Host
from cell.runtime.process import LaunchError
from cell.runtime.tools import ToolCommand

CHUNK_BYTES = 1 << 18
# Of a schema of very many objects a tool would take any amount, outside of its engine's group.
MEMORY_BYTES_MAX = 1 << 30
INFO_BYTES_MAX = 4096
INFO_WITHIN_S = 10.0
_LIMIT = 'ulimit -c 0; ulimit -v "$1" 2>/dev/null || :; shift; exec "$@"'


class ToolStream(AsyncIterator[bytes]):
    """What a tool writes. Raises LaunchError at the end of one that failed, or was ended."""

    def __init__(self, name: str, process: Process) -> None:
        self._name = name
        self._process = process
        self._complaining = asyncio.create_task(self._last_complaint())
        # In a sandbox the tool is not the process that was started, and would outlive it.
        self._inside: int | None = None

    @classmethod
    async def start(cls, host: Host, site: Site, command: ToolCommand) -> Self:
        """Confined to the site, and giving way to the engine and all others."""
        reading, writing = os.pipe()
        try:
            with host.tool(site, command, writing) as (words, given):
                limited = ["/bin/sh", "-c", _LIMIT, "sh", str(MEMORY_BYTES_MAX // 1024), *words]
                given |= {"stdin": DEVNULL, "stdout": PIPE, "stderr": PIPE, "limit": CHUNK_BYTES}
                process = await starting.started(*limited, **given)
            made = cls(command.name, process)
            os.close(writing)
            writing = -1
            await made._find_inside(host, reading)
        finally:
            for descriptor in (reading, writing):
                if descriptor >= 0:
                    os.close(descriptor)
        return made

    async def _find_inside(self, host: Host, reading: int) -> None:
        telling: asyncio.Future[int | None] | None = None
        try:
            await asyncio.to_thread(priority.lower, [self._process.pid])
            if host.hides_files:
                telling = asyncio.ensure_future(asyncio.to_thread(_told, reading))
                async with asyncio.timeout(INFO_WITHIN_S):
                    self._inside = await asyncio.shield(telling)
        except BaseException:
            # What is inside may not be known yet, and is not found once the sandbox has ended.
            await asyncio.shield(starting.end(self._process))
            if telling is not None:
                self._inside = await asyncio.shield(telling)
            self.end()
            raise

    async def __anext__(self) -> bytes:
        assert self._process.stdout is not None
        if chunk := await self._process.stdout.read(CHUNK_BYTES):
            return chunk
        complaint = await asyncio.shield(self._complaining)
        code = await self._process.wait()
        self._forget()
        try:
            tools.check(code, complaint)
        except tools.ToolError as error:
            raise LaunchError(f"{self._name} {tools.why(error)}") from error
        raise StopAsyncIteration

    def end(self) -> None:
        """At once, whatever it waits for; what it has written before may still be read."""
        if self._inside is not None:
            with contextlib.suppress(ProcessLookupError):
                signal.pidfd_send_signal(self._inside, signal.SIGKILL)
        self._forget()
        with contextlib.suppress(ProcessLookupError):
            self._process.kill()

    def _forget(self) -> None:
        if self._inside is not None:
            os.close(self._inside)
            self._inside = None

    async def _last_complaint(self) -> bytes:
        assert self._process.stderr is not None
        last = b""
        while said := await self._process.stderr.read(CHUNK_BYTES):
            last = (last + said)[-tools.COMPLAINT_CHARACTERS :]
        return last


def _told(reading: int) -> int | None:
    """A descriptor of the process that bubblewrap tells of; None where it ended at once."""
    told = b""
    while chunk := os.read(reading, INFO_BYTES_MAX):
        told += chunk
        with contextlib.suppress(ValueError):
            pid = int(orjson.loads(told)["child-pid"])
            with contextlib.suppress(ProcessLookupError):
                inside = os.pidfd_open(pid)
                priority.lower([pid])
                return inside
            return None
    return None
