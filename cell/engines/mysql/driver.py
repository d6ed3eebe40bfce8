"""MariaDB and MySQL: a server on the site's socket, begun from a template, with one user `app`."""

import asyncio
import math
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any
from urllib.parse import quote

from cell.engines import leftover_files
from cell.engines.contents import Contents
from cell.engines.driver import EngineError, Health, Login, Metrics, Snapshot, measured
from cell.engines.mysql import (
    accounts,
    administrator,
    binary_log,
    client,
    dumps,
    events,
    examination,
    files,
    log_replay,
    options,
    storage,
    upgrades,
)
from cell.engines.mysql.background_calls import BackgroundCalls
from cell.engines.mysql.dialects import MARIADB, MYSQL, Dialect
from cell.engines.mysql.servers import ServerInstallation, find, newest_first
from cell.engines.mysql.snapshots import Copier
from cell.engines.mysql.templates import Templates, put
from cell.engines.storage_use import StorageUse
from cell.engines.wal_sources import RecoveryTarget
from cell.layout import Site, write_atomically
from cell.runtime import engine_files
from cell.runtime.engine_files import EnginePath
from cell.runtime.host import Host
from cell.runtime.own_threads import in_own_thread
from cell.runtime.process import Process
from cell.runtime.tools import ToolCommand
from cell.specification import Size, Spec

ACCOUNTS = "accounts.sql"
REPLICATION = f"{options.DATABASES}/multi-master.info"
APPLY_FOR_S = 30.0
# A server that answers and refuses: without room for the cell, say, for as long as somebody wants.
HELD_UP_FOR_S = 5.0
LOOK_AGAIN_S = 0.05
# Tables that were temporary.
LEFT_OVER = rf"{options.DATABASES}/(ibtmp[^/]*|#innodb_temp/[^/]+)"


class MySQLFamily:
    protocol = "mysql"
    dump_suffix = "sql"
    lent_share = 1.5

    def __init__(self, host: Host, dialect: Dialect) -> None:
        self._host = host
        self._dialect = dialect
        self._storage_use = StorageUse()
        self.engine = dialect.engine
        self.missing = dialect.missing
        found = find(dialect.programs)
        self.servers = newest_first(
            server for server in found if server.engine == dialect.engine and dialect.runs(server)
        )
        self._templates = Templates(host, dialect)
        self._background = BackgroundCalls(host)
        self.events = events.Scheduler(self._background)
        # Those whose data is being copied.
        self._copied: set[Path] = set()
        self._holder = (
            storage.StorageLimit(self._background, dialect.rights) if dialect.rights else None
        )
        named = ", ".join(f"{each.program} {each.version}" for each in self.servers.values())
        self.source = named or f"no {dialect.engine} server on PATH"

    def versions(self) -> tuple[str, ...]:
        """Series: patches are not ordered but applied."""
        return tuple(self.servers)

    def username(self, generation: int) -> str:  # noqa: ARG002 - the contract's
        return accounts.TENANT

    def socket(self, site: Site) -> EnginePath:
        return site.socket

    async def provision(self, site: Site, spec: Spec) -> None:
        server = self._server(spec)
        await asyncio.to_thread(self._make_folders, site, server)
        await asyncio.to_thread(leftover_files.remove, site.data, LEFT_OVER)
        if not await asyncio.to_thread(_has_databases, site):
            await self._templates.copy(server, site)

    async def start(self, site: Site, spec: Spec) -> Process:
        server = self._server(spec)
        storage.starts(site, spec.size)
        self.events.hold(site)
        await asyncio.to_thread(engine_files.remove, site.socket)
        # It is a replica of nobody.
        await asyncio.to_thread(engine_files.remove, site.data / REPLICATION)
        words = self.command(site, server, spec.size, options.DATABASES, site.socket.name)
        log = await asyncio.to_thread(self._log_options, site, spec)
        return await self._host.start(site, [*words, *log], {}, spec.size, mounts=server.mounts)

    def _log_options(self, site: Site, spec: Spec) -> Sequence[str]:  # noqa: ARG002 - MariaDB's
        return options.NO_LOG

    def command(
        self, site: Site, server: ServerInstallation, size: Size, databases: str, socket: str
    ) -> list[str]:
        """What a server is started with, on the folder and the socket of these names.

        Whether it logs what changes has to be added.
        """
        view = self._host.view(site)
        base = [] if server.is_systems else [f"--basedir={server.base}"]
        return [
            *(str(server.program), "--no-defaults", *base),
            *options.for_all(view, databases, socket),
            *self._dialect.options(server, size),
            *options.words(self._dialect.fixed(size)),
            *options.words(self._dialect.changeable(size)),
        ]

    async def stop(self, site: Site, process: Process, timeout_s: float) -> None:
        await process.stop(timeout_s)
        self._background.disconnect(site)

    async def ready(self, site: Site, login: Login) -> bool:
        if engine_files.find(site.socket) is None:
            return False
        return await client.can_log_in(site.socket, login.username, login.password)

    async def health(self, site: Site, login: Login) -> Health:  # noqa: ARG002 - the contract's
        try:
            answers = await client.answers(*self._administrator(site))
        except client.MySQLHeldUpError:
            return Health.FULL
        return Health.WELL if answers else Health.SILENT

    async def set_credentials(self, site: Site, logins: Sequence[Login]) -> str | None:
        hashes = [accounts.native_hash(login.password) for login in logins]
        runs = self._host.find(site) is not None
        ours = (administrator.login if runs else administrator.renew)(self._host, site)
        proof = accounts.native_hash(ours.password)
        statements = self._dialect.everything(ours.username, proof, hashes)
        content = "".join(f"{statement};\n" for statement in statements).encode()
        owner = self._host.owner(site)
        path = site.configuration / ACCOUNTS
        ended = None
        if accounts.ends(path, hashes):
            # Nobody comes in and no password can be set until the sessions are gone.
            self.events.hold(site)
            locking = [accounts.UNLOGGED, accounts.LOCK, events.END]
            ended = await self._apply(site, locking, ending=True)
        write_atomically(path, content, mode=0o640, gid=-1 if owner is None else owner)
        return await self._apply(site, self._dialect.tenant(ours.username, hashes)) or ended

    async def end_sessions(self, site: Site, numbers: Sequence[int]) -> int:
        try:
            return await client.end_some(*self._administrator(site), accounts.TENANT, numbers)
        except client.FAILURES as error:
            raise EngineError(f"the engine is not responding: {error}") from error

    async def resize(self, site: Site, process: Process, size: Size) -> bool:
        """At once where it grows, and nothing changes that is decided when a server starts."""
        wanted, fixed = self._dialect.changeable(size), self._dialect.fixed(size)
        pool = "innodb_buffer_pool_size"
        try:
            now = await self._ask(site, *(f"@@GLOBAL.{name}" for name in (pool, *fixed)))
            if now[0] > wanted[pool] or list(map(str, now[1:])) != list(map(str, fixed.values())):
                return False
            self._host.resize(process, size)
            storage.limit(site, size)
            changes = [f"SET GLOBAL {name} = {value}" for name, value in wanted.items()]
            await client.tell(*self._administrator(site), changes)
        except client.FAILURES:
            return False
        return True

    async def upgrade(self, site: Site, former: Spec, spec: Spec) -> None:
        """To a later series; the server's own tool works on a copy, which then takes the place."""
        if former.engine_version == spec.engine_version:
            return
        if not await asyncio.to_thread(_has_databases, site):
            return
        if _number(spec.engine_version) < _number(former.engine_version):
            versions = f"from {former.engine_version} cannot be opened by {spec.engine_version}"
            raise EngineError(f"data of {self.engine} {versions}")
        server = self._server(spec)
        await asyncio.to_thread(self._make_folders, site, server)
        words = self.command(site, server, spec.size, upgrades.DATABASES, upgrades.SOCKET)
        upgrade = upgrades.Upgrade(self._host, self._dialect, server, site, spec)
        await upgrade.run([*words, *options.NO_LOG], administrator.login(self._host, site))

    async def snapshot(
        self,
        site: Site,
        process: Process | None,
        login: Login,  # noqa: ARG002 - the contract's
        target: Path,
    ) -> Snapshot:
        copier = Copier(self._host, self._dialect, site)
        if process is None:
            await in_own_thread(files.put_back, site.data / options.DATABASES)
            return await copier.of_stopped(target)
        server = await self._answering(site)
        self._copied.add(site.directory)
        try:
            return await copier.of_running(server, process, target)
        finally:
            self._copied.discard(site.directory)

    async def dump_command(self, site: Site, login: Login, database: str) -> ToolCommand:
        return dumps.command(self._host, await self._answering(site), site, login, database)

    async def restore(self, site: Site, source: Path) -> None:
        await in_own_thread(put, self._host, site, source / options.DATABASES)
        await in_own_thread(binary_log.put_unfinished, self._host, site, source)

    async def examine(self, site: Site, login: Login) -> Contents:
        ours = administrator.login(self._host, site)
        return await in_own_thread(examination.examine, site.socket, ours, login)

    async def erase(self, site: Site) -> None:
        self._storage_use.forget(site)
        self._background.disconnect(site)

    def refuse_writes(self, site: Site) -> None:
        """The first look at it takes the rights."""
        self._storage_use.forget(site)

    def metrics(self, site: Site, process: Process | None) -> Metrics:
        used_bytes, _ = self._storage_use.count(site)
        notice = None
        if process is not None:
            notice = self.events.look(site, process)
            if self._holder is not None:
                self._holder.look(site, used_bytes)
        return measured(self._host, process, used_bytes, notice)

    async def statements(self, site: Site, login: Login) -> int | None:  # noqa: ARG002 - the contract's
        try:
            row = await client.ask(*self._administrator(site), client.QUESTIONS)
            return int(row[1])
        except (*client.FAILURES, LookupError, TypeError, ValueError):
            return None

    def uri(self, login: Login, host: str, port: int) -> str:
        password = quote(login.password, safe="")
        place = f"{host}:{port}/{accounts.DATABASE}"
        return f"mysql://{login.username}:{password}@{place}?ssl-mode=VERIFY_IDENTITY"

    async def _apply(
        self, site: Site, statements: Sequence[str], *, ending: bool = False
    ) -> str | None:
        """Tells a server that runs; one that does not will read the accounts when it starts.

        With `ending` it returns when the tenant has no session. A server that is kept from it is
        ended, lest who has to go can stay: the answer is why.
        """
        began = time.monotonic()
        while True:
            try:
                await client.tell(*self._administrator(site), statements)
                if ending:
                    await client.end_sessions(*self._administrator(site), accounts.TENANT)
            except client.FAILURES as error:
                # It may just be starting, and have read the former accounts.
                if (process := self._host.find(site)) is None:
                    return None
                if site.directory in self._copied:
                    # What keeps it from that may be the copy.
                    raise EngineError(f"its data is being copied: {error}") from error
                gone = isinstance(error, client.NotThereError)
                if time.monotonic() - began > (APPLY_FOR_S if gone else HELD_UP_FOR_S):
                    await process.kill()
                    return f"it did not accept new credentials: {error}"
            else:
                return None
            await asyncio.sleep(LOOK_AGAIN_S)

    async def _ask(self, site: Site, *expressions: str) -> tuple[Any, ...]:
        return await client.ask(*self._administrator(site), f"SELECT {', '.join(expressions)}")

    def _administrator(self, site: Site) -> tuple[EnginePath, str, str]:
        ours = administrator.login(self._host, site)
        return site.socket, ours.username, ours.password

    def _server(self, spec: Spec) -> ServerInstallation:
        server = self.servers.get(spec.engine_version)
        if server is None:
            raise EngineError(f"{self.engine} {spec.engine_version} is not installed here")
        return server

    async def _answering(self, site: Site) -> ServerInstallation:
        """The one of a server that runs, by what it says: 10.11.19-MariaDB, 8.0.36."""
        try:
            (version,) = await self._ask(site, "VERSION()")
        except client.FAILURES as error:
            raise EngineError(f"the engine is not responding: {error}") from error
        series = ".".join(version.split(".")[:2])
        # Removed while it runs: what was installed instead will do, or refuse.
        return self.servers.get(series) or next(iter(self.servers.values()))

    def _make_folders(self, site: Site, server: ServerInstallation) -> None:
        (site.configuration / options.NOTHING).mkdir(mode=0o755, exist_ok=True)
        libraries = site.configuration / options.LIBRARIES
        libraries.mkdir(exist_ok=True)
        libraries.chmod(0o755)
        if self._dialect.library and (path := server.library(self._dialect.library)):
            # Of the release that starts now.
            write_atomically(libraries / path.name, path.read_bytes(), mode=0o644)
        engine_files.make_folder(site.data / options.TEMPORARY, self._host.owner(site))


class MariaDB(MySQLFamily):
    """Its binary log is archived, and applied to a backup."""

    def __init__(self, host: Host) -> None:
        super().__init__(host, MARIADB)
        self.wal = binary_log.BinaryLog(host)

    def _log_options(self, site: Site, spec: Spec) -> Sequence[str]:
        logs = binary_log.prepare(self._host, site, wanted=spec.continuous_archiving)
        return binary_log.options(self._host.view(site)) if logs else options.NO_LOG

    def client_command(self, site: Site, spec: Spec, login: Login) -> ToolCommand:
        """The command line's client, which runs what it reads as the owner."""
        return dumps.client_command(self._host, self._server(spec), site, login)

    def source_dump_command(
        self, spec: Spec, socket: str, databases: Sequence[str], *, named: bool
    ) -> ToolCommand:
        """Of a server that is no instance's, by the tool of the instance's version."""
        return dumps.source_command(self._server(spec), socket, databases, named=named)

    async def supported(self, site: Site) -> examination.Supported:
        ours = administrator.login(self._host, site)
        return await in_own_thread(examination.supported, site.socket, ours)

    async def owned(self, site: Site, login: Login) -> Contents:
        """What its owner has made, read by his login."""
        ours = administrator.login(self._host, site)
        return await in_own_thread(examination.owned, site.socket, ours, login)

    async def refuse_passing(self, site: Site) -> None:
        """EngineError where there are rows that no copy has."""
        ours = administrator.login(self._host, site)
        await in_own_thread(examination.refuse_passing, site.socket, ours)

    async def recover(self, site: Site, source: Path, target: RecoveryTarget) -> None:
        spec = target.spec
        await self.restore(site, source)
        server = self._server(spec)
        await asyncio.to_thread(self._make_folders, site, server)
        words = self.command(site, server, spec.size, options.DATABASES, log_replay.SOCKET)
        replay = log_replay.LogReplay(self._host, self._dialect, server, site, spec.size)
        await replay.run([*words, *options.NO_LOG], source, math.floor(target.at), target.within_s)


def mariadb(host: Host) -> MySQLFamily:
    return MariaDB(host)


def mysql(host: Host) -> MySQLFamily:
    return MySQLFamily(host, MYSQL)


def _has_databases(site: Site) -> bool:
    """Whether there is data, be it beside its place after a replacement that was cut short."""
    databases = site.data / options.DATABASES
    files.put_back(databases)
    return engine_files.find(databases) is not None


def _number(series: str) -> tuple[int, ...]:
    return tuple(map(int, series.split(".")))
