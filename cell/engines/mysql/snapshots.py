"""Copies of a server's data: by MariaDB's own backup tool, or by holding the server still."""

import asyncio
import contextlib
import sys
import time
from dataclasses import dataclass, replace
from pathlib import Path

from cell.engines.driver import EngineError, Snapshot
from cell.engines.mysql import administrator, binary_log, files
from cell.engines.mysql.client import FAILURES, session
from cell.engines.mysql.dialects import Dialect
from cell.engines.mysql.options import DATABASES, FILES
from cell.engines.mysql.servers import ServerInstallation, same_release
from cell.engines.wal_sources import LogPlace, WalNeed
from cell.layout import Site
from cell.runtime import budget, engine_files, pace
from cell.runtime.confinement import Mount
from cell.runtime.engine_files import EnginePath
from cell.runtime.engine_folders import INSIDE
from cell.runtime.folder_sizes import size_bytes
from cell.runtime.host import Host
from cell.runtime.own_threads import in_own_thread
from cell.runtime.process import LaunchError, Process

BACKUP_TIMEOUT_S = 6 * 3600.0
# For a session's locks; nothing else is done with the instance meanwhile.
LOCKED_MAX_S = 30.0
LOOK_AGAIN_S = 1.0
LOCKED = """
SELECT ID FROM information_schema.PROCESSLIST
WHERE USER = %s AND STATE LIKE 'Waiting for%%' AND TIME_MS > %s
"""
# The tool writes a name between backticks as it is, and so fails at these; it runs as the
# administrator.
NAMED_WITH_BACKTICKS = """
SELECT 1 FROM information_schema.SCHEMATA WHERE SCHEMA_NAME LIKE '%`%'
UNION ALL SELECT 1 FROM information_schema.TABLES WHERE TABLE_NAME LIKE '%`%' LIMIT 1
"""
# Temporary tables, and what names one server among others.
LEFT_OUT = ("ibtmp", "#innodb_temp", "auto.cnf", "mariadb_backup_", "xtrabackup_", "backup-my.cnf")


# By release.
POSITIONS = ("mariadb_backup_binlog_info", "xtrabackup_binlog_info")
POSITION_BYTES_MAX = 65_536


@dataclass(frozen=True)
class Copier:
    """Copies the data of one site; what it makes, a server starts with as after a crash at most."""

    host: Host
    dialect: Dialect
    site: Site

    async def of_stopped(self, target: Path) -> Snapshot:
        return await in_own_thread(self._copy, target)

    async def of_running(
        self, server: ServerInstallation, process: Process, target: Path
    ) -> Snapshot:
        """With the server working on, where its own tool for that is installed and may write."""
        await in_own_thread(self._begin_log_file)
        tool = server.tool(self.dialect.backup_tool) if self.dialect.backup_tool else None
        may_write = self.host.hides_files or self.host.owner(self.site) is None
        if tool is None or not may_write or not same_release(tool, server):
            return await self._hold_still(process, target)
        if await in_own_thread(self._has_backticks):
            return await self._hold_still(process, target)
        return await self._back_up(server, tool, target)

    def _begin_log_file(self) -> None:
        """Where the server logs what changes, the log continues the copy within a new file."""
        if engine_files.find(self.site.data / binary_log.FOLDER) is None:
            return
        ours = administrator.login(self.host, self.site)
        try:
            with session(self.site.socket, ours.username, ours.password) as cursor:
                cursor.execute("FLUSH BINARY LOGS")
        except FAILURES as error:
            raise EngineError(f"the engine is not responding: {error}") from error

    def _has_backticks(self) -> bool:
        ours = administrator.login(self.host, self.site)
        with (
            contextlib.suppress(*FAILURES),
            session(self.site.socket, ours.username, ours.password) as cursor,
        ):
            cursor.execute(NAMED_WITH_BACKTICKS)
            return cursor.fetchone() is not None
        return False

    async def _back_up(self, server: ServerInstallation, tool: Path, target: Path) -> Snapshot:
        """The tool runs as the site's user, so for its time the folder is that user's."""
        made = EnginePath(target.with_name(f"{target.name}.part"))
        owner = self.host.owner(self.site)
        await asyncio.to_thread(engine_files.make_folder, made, owner)
        inside = INSIDE / "snapshot" if self.host.hides_files else made.outside
        view = self.host.view(self.site)
        common = [str(tool), "--no-defaults", f"--target-dir={inside / DATABASES}", *FILES[:1]]
        mounts = [*server.mounts, Mount(made.outside, INSIDE / "snapshot", writable=True)]
        ours = administrator.login(self.host, self.site)
        copying = [
            *(*common, "--backup", f"--datadir={view.data / DATABASES}"),
            *(f"--socket={view.run / self.site.socket.name}", "--innodb-use-native-aio=0"),
            *("--user", ours.username, f"--tmpdir={inside}"),
        ]
        preparing = [*common, "--prepare", "--innodb-use-native-aio=0", f"--tmpdir={inside}"]
        secret = {"MYSQL_PWD": ours.password}
        ended: list[int] = []
        watch = asyncio.create_task(self._watch(ended))
        try:
            for words, environment in ((copying, secret), (preparing, {})):
                await self.host.run(
                    self.site,
                    words,
                    environment,
                    mounts=mounts,
                    timeout_s=BACKUP_TIMEOUT_S,
                    going_on=lambda: _fits(made),
                )
                if environment:
                    place, at = await asyncio.to_thread(_position, made / DATABASES), time.time()
            # A copy of the copy, which is removed.
            with budget.limit(budget.limit_bytes() or sys.maxsize):
                return await in_own_thread(self._keep, made / DATABASES, target, place, at)
        except LaunchError as error:
            if ended:
                raise EngineError(
                    "the copy waited too long for a session that holds tables locked; "
                    "end it (SHOW PROCESSLIST, KILL) and try again"
                ) from error
            raise EngineError(f"the backup failed: {_last_line(error)}") from error
        finally:
            watch.cancel()
            with contextlib.suppress(OSError):
                await in_own_thread(engine_files.remove, made)

    async def _watch(self, ended: list[int]) -> None:
        """Ends the connections of the tool that wait too long, and so the tool; notes which."""
        while True:
            await asyncio.sleep(LOOK_AGAIN_S)
            await in_own_thread(self._end_waits, ended)

    def _end_waits(self, ended: list[int]) -> None:
        ours = administrator.login(self.host, self.site)
        with (
            contextlib.suppress(*FAILURES),
            session(self.site.socket, ours.username, ours.password) as cursor,
        ):
            cursor.execute(LOCKED, [ours.username, LOCKED_MAX_S * 1000])
            for (number,) in cursor.fetchall():
                ended.append(number)
                cursor.execute("KILL %s", [number])

    async def _hold_still(self, process: Process, target: Path) -> Snapshot:
        try:
            place = await in_own_thread(self._copy_held, process, target)
        except FAILURES as error:
            raise EngineError(f"the engine could not be locked for a backup: {error}") from error
        return await in_own_thread(self._finish, target, place, time.time())

    def _copy_held(self, process: Process, target: Path) -> LogPlace | None:
        """Tables without a log are complete first; those with one are then as after a crash."""
        ours = administrator.login(self.host, self.site)
        with session(self.site.socket, ours.username, ours.password) as cursor:
            for statement in self.dialect.hold:
                cursor.execute(statement)
            place = binary_log.current(cursor)
            with pace.without_rests(), process.held_still() as is_still:
                if not is_still:
                    raise EngineError("the engine could not be held still for a backup; try again")
                self._take(target)
        return place

    def _copy(self, target: Path) -> Snapshot:
        self._take(target)
        binary_log.copy_unfinished(self.site, target)
        return self._finish(target)

    def _take(self, target: Path) -> None:
        target.mkdir(mode=0o700)
        files.copy(self.site.data / DATABASES, target / DATABASES, LEFT_OUT)

    def _keep(self, made: EnginePath, target: Path, place: LogPlace | None, at: float) -> Snapshot:
        """Copied once more: what the tool's user could still hold open is not the snapshot."""
        target.mkdir(mode=0o700)
        files.copy(made, target / DATABASES, LEFT_OUT)
        return self._finish(target, place, at)

    @staticmethod
    def _finish(target: Path, place: LogPlace | None = None, at: float = 0.0) -> Snapshot:
        """The log continues it from the `place` on, if there is one."""
        if place is not None:
            binary_log.note(target, place)
        files.settle(target)
        measured = files.measure(target)
        return measured if place is None else replace(measured, wal=WalNeed(None, at))


def _position(made: EnginePath) -> LogPlace | None:
    """In the log, as the tool notes it; None where the server has none."""
    for name in POSITIONS:
        if told := engine_files.read(made / name, POSITION_BYTES_MAX):
            return binary_log.position(told)
    return None


def _fits(made: EnginePath) -> None:
    """The tool writes by itself; it is ended where that is too much."""
    budget.spend(0)
    limit = budget.limit_bytes()
    if limit is not None and size_bytes(made) > limit:
        raise budget.exceeded(limit)


def _last_line(error: LaunchError) -> str:
    lines = str(error).strip().splitlines()
    return lines[-1] if lines else "no reason was given"
