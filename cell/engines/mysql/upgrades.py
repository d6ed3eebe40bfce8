"""Brings data to a later series of its server: on a copy, with the server's own tool."""

from dataclasses import dataclass

from cell.engines.driver import EngineError, Login
from cell.engines.mysql import files, options, private_server
from cell.engines.mysql.dialects import Dialect
from cell.engines.mysql.servers import ServerInstallation
from cell.layout import Site
from cell.runtime import engine_files
from cell.runtime.host import Host
from cell.runtime.own_threads import in_own_thread
from cell.specification import Spec

DATABASES = f"{options.DATABASES}.upgraded"
# No client is led here.
SOCKET = "upgrade.sock"
UPGRADE_TIMEOUT_S = 6 * 3600.0


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
        given = (self.host, self.site, words, self.spec.size, self.server.mounts)
        async with private_server.running(*given, self.site.run / SOCKET, login):
            tool = self.dialect.upgrade_tool
            if tool is not None:
                await self._run_tool(tool, login)

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

    def _copy(self) -> None:
        copy = self.site.data / DATABASES
        files.copy(self.site.data / options.DATABASES, copy)
        files.settle(copy, self.host.owner(self.site))
