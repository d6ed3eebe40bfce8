"""Brings data to a later series of its server: on a copy, with the server's own tool."""

import asyncio
from dataclasses import dataclass

from cell.engines.driver import EngineError, Login
from cell.engines.mysql import client, files, options
from cell.engines.mysql.dialects import Dialect
from cell.engines.mysql.servers import ServerInstallation
from cell.layout import Site
from cell.runtime import engine_files
from cell.runtime.host import Host
from cell.runtime.own_threads import in_own_thread
from cell.runtime.process import Process
from cell.specification import Spec

DATABASES = f"{options.DATABASES}.upgraded"
# No client is led here.
SOCKET = "upgrade.sock"
UPGRADE_TIMEOUT_S = 6 * 3600.0
START_TIMEOUT_S = 600.0
STOP_TIMEOUT_S = 600.0
LOOK_AGAIN_S = 0.1
# So that upgrades of small sizes come to their end.
VCPU_MIN = 1.0


@dataclass(frozen=True)
class Upgrade:
    host: Host
    dialect: Dialect
    server: ServerInstallation
    site: Site
    spec: Spec

    async def run(self, words: list[str], login: Login) -> None:
        """`words` start the later server on the copy. Raises EngineError, the data untouched."""
        copy = self.site.data / DATABASES
        try:
            await in_own_thread(self._copy)
            await self._work(words, login)
            await in_own_thread(files.replace, copy, self.site.data / options.DATABASES)
        except OSError as error:
            raise EngineError(f"the upgrade failed: {error}") from error
        finally:
            await in_own_thread(engine_files.remove, copy)

    async def _work(self, words: list[str], login: Login) -> None:
        process = await self.host.start(
            self.site, words, {}, self.spec.size, mounts=self.server.mounts
        )
        self.host.headroom.give(process.group, self.spec.size.memory_bytes)
        self.host.limit_cpu(process, max(VCPU_MIN, self.spec.size.vcpu))
        try:
            await self._until_ready(process, login)
            tool = self.dialect.upgrade_tool
            if tool is not None:
                await self._run_tool(tool, login)
        finally:
            await process.stop(STOP_TIMEOUT_S)
            await asyncio.to_thread(self.host.forget, self.site)

    async def _run_tool(self, name: str, login: Login) -> None:
        tool = self.server.tool(name)
        if tool is None:
            raise EngineError(f"{name} of {self.server.version} is not installed")
        view = self.host.view(self.site)
        words = [
            *(str(tool), "--no-defaults", f"--socket={view.run / SOCKET}"),
            *("--user", login.username, f"--tmpdir={view.data / options.TEMPORARY}"),
        ]
        await self.host.run(
            self.site,
            words,
            {"MYSQL_PWD": login.password},
            mounts=self.server.mounts,
            timeout_s=UPGRADE_TIMEOUT_S,
        )

    async def _until_ready(self, process: Process, login: Login) -> None:
        socket = self.site.run / SOCKET
        try:
            async with asyncio.timeout(START_TIMEOUT_S):
                while not await client.can_log_in(socket, login.username, login.password):
                    if not process.alive:
                        raise EngineError("the newer server does not start with this data")
                    await asyncio.sleep(LOOK_AGAIN_S)
        except TimeoutError as error:
            raise EngineError("the newer server does not accept logins") from error

    def _copy(self) -> None:
        copy = self.site.data / DATABASES
        files.copy(self.site.data / options.DATABASES, copy)
        files.settle(copy, self.host.owner(self.site))
