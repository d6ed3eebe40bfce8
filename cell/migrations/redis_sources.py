"""A running Redis or Valkey as a source: what it sends a new replica is all its data, as an RDB."""

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import BinaryIO, Final

from cell.migrations import spool
from cell.migrations.conduit import Conduit
from cell.migrations.errors import MigrationError
from cell.migrations.files import NativeFileMigration
from cell.migrations.record import MigrationProgress
from cell.migrations.report import PreflightReport, bounded
from cell.runtime.own_threads import in_own_thread

BLOCK_BYTES: Final = 1 << 20
# As a server ends what it sends while it makes it.
MARK_BYTES: Final = 40
EMPTY_LINE_S: Final = 0.1
RIGHTS: Final = "the user needs the rights +ping, +psync and +replconf"


@dataclass
class RedisCopyMigration(NativeFileMigration):
    """As of the moment at which it asks. Nothing is left at the source."""

    conduit: Conduit

    async def preflight(self) -> PreflightReport:
        await self._fetch()
        return await super().preflight()

    async def copy(self) -> None:
        if not self._file.exists():
            await self._fetch()
        await super().copy()

    async def _fetch(self) -> None:
        """Into the file that others are sent. Raises MigrationError."""
        self._found = None
        await asyncio.to_thread(spool.folder(self.work.instance).mkdir, mode=0o750, exist_ok=True)
        try:
            async with (
                asyncio.timeout(self.work.settings.upgrade_timeout_s),
                self._asked() as source,
            ):
                with self._file.open("wb") as file:
                    await self._receive(source, file)
        except TimeoutError as error:
            within_s = self.work.settings.migration_silence_s
            raise MigrationError(
                f"the source said nothing for {within_s:.0f} s, or did not end in time"
            ) from error
        except (OSError, EOFError, asyncio.LimitOverrunError) as error:
            why = str(error) or type(error).__name__
            raise MigrationError(f"the source broke off: {why}") from error

    @contextlib.asynccontextmanager
    async def _asked(self) -> AsyncIterator["ServerSource"]:
        """A connection on which the data comes next."""
        reader, writer = await self.conduit.connect()
        source = ServerSource(reader, writer, self.work.settings.migration_silence_s)
        try:
            uri = self.conduit.source
            if uri.password:
                name = [uri.user] if uri.user else []
                await source.ask("AUTH", *name, uri.password)
            await source.ask("PING")
            await source.ask("REPLCONF", "capa", "eof", "capa", "psync2")
            await source.ask("PSYNC", "?", "-1")
            yield source
        finally:
            writer.transport.abort()

    async def _receive(self, source: "ServerSource", file: BinaryIO) -> None:
        length = await source.content()
        if not length.startswith(b"$"):
            raise MigrationError("the source did not send its data as Redis and Valkey do")
        mark = length[5:] if length.startswith(b"$EOF:") else b""
        if mark and len(mark) != MARK_BYTES:
            raise MigrationError("the source did not send its data as Redis and Valkey do")
        most = self.work.instance.record.spec.size.storage_bytes
        wanted = None if mark else _count(length[1:])
        if (wanted or 0) > most:
            raise MigrationError(f"the source has {wanted} bytes; the storage is {most}")
        await self._fill(source, file, wanted, mark, most)

    async def _fill(
        self, source: "ServerSource", file: BinaryIO, wanted: int | None, mark: bytes, most: int
    ) -> None:
        progress = self.work.record.progress = MigrationProgress(0, wanted)
        came, tail = 0, b""
        while wanted is None or came < wanted:
            left = BLOCK_BYTES if wanted is None else min(BLOCK_BYTES, wanted - came)
            block = await source.block(left)
            came += len(block)
            if came > most + MARK_BYTES:
                raise MigrationError(f"the source sent more than the storage, {most} bytes")
            spool.check_disk(self.work.instance, (wanted or came) - came)
            await in_own_thread(file.write, block)
            progress.bytes_done, progress.updated_at = came, time.time()
            tail = (tail + block)[-MARK_BYTES:]
            if mark and tail == mark:
                file.truncate(came - MARK_BYTES)
                came -= MARK_BYTES
                break
        self.work.record.total_bytes = progress.bytes_total = came


class ServerSource:
    """What is said to it and what it answers; nothing of a secret is in an error."""

    def __init__(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, silence_s: float
    ) -> None:
        self._reader, self._writer, self._silence_s = reader, writer, silence_s

    async def ask(self, *words: str) -> None:
        """Raises MigrationError where it refuses."""
        encoded = [word.encode() for word in words]
        told = b"".join(b"$%d\r\n%s\r\n" % (len(word), word) for word in encoded)
        self._writer.write(b"*%d\r\n%s" % (len(words), told))
        answer = await self.content()
        if answer.startswith(b"+"):
            return
        said = bounded(answer[1:].decode(errors="replace"))
        hint = f"; {RIGHTS}" if answer.startswith(b"-NOPERM") else ""
        raise MigrationError(f"the source refused {words[0]}: {said}{hint}")

    async def line(self) -> bytes:
        async with asyncio.timeout(self._silence_s):
            return (await self._reader.readuntil(b"\n")).rstrip(b"\r\n")

    async def content(self) -> bytes:
        """The next line that is not empty, by which it says each second that it is still at it."""
        while not (line := await self.line()):  # noqa: ASYNC110 - what is waited for is sent
            # What has arrived is read without waiting: from one that sends nothing else, the cell
            # would hear nobody but it.
            await asyncio.sleep(EMPTY_LINE_S)
        return line

    async def block(self, most: int) -> bytes:
        """Raises EOFError where it has ended."""
        async with asyncio.timeout(self._silence_s):
            block = await self._reader.read(most)
        if not block:
            raise EOFError("it ended before all had come")
        return block


def _count(told: bytes) -> int:
    if not told.isdigit() or len(told) > 18:  # noqa: PLR2004 - of what 64 bits hold
        raise MigrationError("the source did not send its data as Redis and Valkey do")
    return int(told)
