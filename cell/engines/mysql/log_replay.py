"""Applies an archived binary log to the data of a backup, up to a second.

A private server reads the files as a replica would read what it has received: no text of theirs
is parsed by anybody else, and no statement is told apart from the next by its words.
"""

import asyncio
import mmap
import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias, TypeVar

from cell.engines import log_pieces
from cell.engines.driver import EngineError, Login
from cell.engines.mysql import accounts, administrator, binary_log, client, options, private_server
from cell.engines.mysql.dialects import Dialect
from cell.engines.mysql.refused_changes import OWN_ENGINE, RefusedChange, refused
from cell.engines.mysql.replayed_events import ReplayedEvents
from cell.engines.mysql.servers import ServerInstallation
from cell.engines.wal_sources import LogPlace
from cell.layout import Site, write_atomically
from cell.runtime import budget, engine_files, log_files
from cell.runtime.engine_files import EnginePath
from cell.runtime.host import Host
from cell.runtime.own_threads import in_own_thread
from cell.runtime.process import Process
from cell.specification import Size
from cell.timestamps import moment

T = TypeVar("T")
# Its socket, and who the cell is to it.
Server: TypeAlias = tuple[EnginePath, str, str]

RELAY = "relay"
SOCKET = "recovery.sock"
STATEMENTS = "recovery.sql"
LOOK_AGAIN_S = 0.2
# What a replica keeps of its master, and of how far it is.
KEPT = ("master.info", "relay-log.info", "multi-master.info")
FROM = (
    "CHANGE MASTER TO MASTER_HOST = 'none', MASTER_USE_GTID = no,"
    f" RELAY_LOG_FILE = '{RELAY}.000001', RELAY_LOG_POS = "
)
APPLY = "START SLAVE SQL_THREAD"
# A row that is to be changed is not there, or is there already. Tables of MEMORY are empty in a
# backup, and those without transactions may not be as the log says after a crash.
NOT_FITTING = frozenset({1032, 1062})
LENIENT = ("SET GLOBAL slave_exec_mode = IDEMPOTENT", APPLY)
PASSED_OVER = (
    "while the binary log was applied, rows that were to be changed were not there, or were there "
    "already; the other changes were made. Tables without transactions (MEMORY, MyISAM, Aria) may "
    "be incomplete"
)
ENDED = ("STOP SLAVE", accounts.FORGET_MASTER)


@dataclass(frozen=True)
class LogReplay:
    host: Host
    dialect: Dialect
    server: ServerInstallation
    site: Site
    size: Size

    async def run(self, words: list[str], source: Path, at: int, within_s: float) -> None:
        """With the data in place; `words` start a server on it. Raises EngineError."""
        end, events = await in_own_thread(self._receive, source, at)
        ours = administrator.login(self.host, self.site)
        self._write_statements(ours)
        socket = self.site.run / SOCKET
        given = (self.host, self.site, [*words, *self._words()], self.size, self.server.mounts)
        try:
            async with (
                asyncio.timeout(within_s),
                private_server.running(*given, socket, ours) as process,
            ):
                login = (socket, ours.username, ours.password)
                begins = binary_log.noted(source).offset
                await asyncio.to_thread(_with_cursor, login, events.begin)
                await client.tell(*login, [f"{FROM}{begins}", APPLY])
                await self._until_applied(process, login, end)
                await asyncio.to_thread(_with_cursor, login, events.end)
                await client.tell(*login, ENDED)
        except client.FAILURES as error:
            raise EngineError(f"the binary log cannot be applied: {error}") from error
        except TimeoutError as error:
            raise EngineError(f"the binary log was not applied within {within_s:.0f} s") from error
        finally:
            await in_own_thread(self._clear)

    def _words(self) -> list[str]:
        view = self.host.view(self.site)
        place = view.data / RELAY / RELAY
        return [
            # Not as the server that wrote it: it would pass over what is its own.
            *("--server-id=2", f"--relay-log={place}", f"--relay-log-index={place}.index"),
            f"--init-file={view.configuration / STATEMENTS}",
            # What a session may have chosen for itself, and the log does not say.
            *("--innodb-strict-mode=OFF", "--system-versioning-alter-history=KEEP"),
            # A transaction of any length.
            *("--slave-max-allowed-packet=1G", "--slave-sql-verify-checksum=ON"),
        ]

    def _write_statements(self, ours: Login) -> None:
        """As at each start, but that nobody logs in, and that what is to be applied stays."""
        proof = accounts.native_hash(ours.password)
        everything = self.dialect.everything(ours.username, proof, [])
        kept = [each for each in everything if each != accounts.FORGET_MASTER]
        content = "".join(f"{statement};\n" for statement in kept).encode()
        owner = self.host.owner(self.site)
        gid = -1 if owner is None else owner
        write_atomically(self.site.configuration / STATEMENTS, content, mode=0o640, gid=gid)

    def _receive(self, source: Path, at: int) -> tuple[LogPlace, ReplayedEvents]:
        """Puts the files, cut at the second `at`, where the server reads them; their end."""
        begins, events = binary_log.noted(source), ReplayedEvents()
        folder, owner = self.site.data / RELAY, self.host.owner(self.site)
        engine_files.remove(folder)
        engine_files.make_folder(folder, owner)
        end = LogPlace(1, begins.offset)
        names: list[str] = []
        view = self.host.view(self.site).data / RELAY
        for path in log_pieces.join(source / "wal", begins.file).values():
            is_cut = cut(path, at)
            with mapped(path) as content:
                events.read(content, 0 if names else begins.offset)
            names.append(f"{RELAY}.{len(names) + 1:06}")
            engine_files.copy_file(path, folder / names[-1], owner)
            end = LogPlace(len(names), path.stat().st_size)
            path.unlink()
            if is_cut:
                break
        if not names:
            raise EngineError("nothing of the binary log is there")
        index = "".join(f"{view / name}\n" for name in names)
        engine_files.make_file(folder / f"{RELAY}.index", owner, index.encode())
        return end, events

    async def _until_applied(self, process: Process, login: Server, end: LogPlace) -> None:
        is_lenient, tried = False, set[LogPlace]()
        while True:
            # Whoever deletes the instance does not wait for it.
            budget.spend(0)
            told = await asyncio.to_thread(_with_cursor, login, _status)
            number = int(told["Last_SQL_Errno"])
            if number in NOT_FITTING and not is_lenient:
                is_lenient = True
                log_files.write(self.site.log, f"{moment(time.time())} menagerie: {PASSED_OVER}")
                await client.tell(*login, LENIENT)
                continue
            if number:
                change = await in_own_thread(self._refused, told)
                if change.place in tried:
                    raise change.error(number)
                tried.add(change.place)
                await client.tell(*login, change.with_another_engine())
                continue
            file = int(told["Relay_Log_File"].rpartition(".")[2])
            if LogPlace(file, int(told["Relay_Log_Pos"])) >= end:
                return
            if told["Slave_SQL_Running"] == "No":
                # It has applied what was refused, with another storage engine.
                await client.tell(*login, [OWN_ENGINE, APPLY])
            if not process.alive:
                raise EngineError("the server ended while it applied the binary log")
            await asyncio.sleep(LOOK_AGAIN_S)

    def _refused(self, told: dict[str, Any]) -> RefusedChange:
        return refused(self.site.data / RELAY, told)

    def _clear(self) -> None:
        engine_files.remove(self.site.data / RELAY)
        (self.site.configuration / STATEMENTS).unlink(missing_ok=True)
        for name in KEPT:
            engine_files.remove(self.site.data / options.DATABASES / name)


def _with_cursor(login: Server, work: Callable[[Any], T]) -> T:
    with client.session(*login) as cursor:
        return work(cursor)


def _status(cursor: Any) -> dict[str, Any]:
    cursor.execute("SHOW SLAVE STATUS")
    names = [each[0] for each in cursor.description]
    return dict(zip(names, cursor.fetchone(), strict=True))


def cut(path: Path, at: int) -> bool:
    """Removes from a log what was committed from the second `at` on; whether there was any.

    And what the server was writing when it was killed.
    """
    with mapped(path) as content:
        end, is_cut = _end(content, at)
    os.truncate(path, end)
    return is_cut


@contextmanager
def mapped(path: Path) -> Iterator[mmap.mmap | bytes]:
    """The content of a file of the cell's own."""
    if path.stat().st_size == 0:
        yield b""
        return
    with (
        path.open("rb") as file,
        mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as content,
    ):
        yield content


def _end(content: mmap.mmap | bytes, at: int) -> tuple[int, bool]:
    end = min(len(content), len(binary_log.MAGIC))
    for offset, kind, seconds, length in binary_log.events(content):
        budget.go_on()
        # It begins what is committed at once.
        if kind == binary_log.GTID and seconds >= at:
            return offset, True
        end = offset + length
    return end, False
