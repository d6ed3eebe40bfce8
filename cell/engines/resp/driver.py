"""What the cell can do with Redis and Valkey: the same, but for where the server comes from."""

import asyncio
import contextlib
import math
import time
from collections.abc import Callable, Sequence
from contextlib import AbstractAsyncContextManager
from functools import partial
from pathlib import Path
from urllib.parse import quote

from cell.engines.contents import Contents
from cell.engines.driver import (
    EngineError,
    EngineRefusal,
    Health,
    Login,
    Metrics,
    Room,
    Snapshot,
    measured,
)
from cell.engines.resp import administrator, append_only, dumping, files, functions, keyspace
from cell.engines.resp.configuration import (
    ADMINISTRATOR,
    ADMINISTRATOR_RULES,
    CONFIGURATION,
    DEFAULT_RULES,
    DUMP,
    SCRIPT_MS,
    USERNAME,
    USERS,
    RespLimits,
    configuration,
    rules_of,
    users,
)
from cell.engines.resp.connection import RefusalError, RespConnection, connected, is_full
from cell.engines.resp.rewriting import base_anew, rewrite
from cell.engines.resp.servers import ServerProgram, redis_servers, valkey_servers
from cell.engines.resp.storage import Writers
from cell.engines.resp.upkeep import SLOW_START, Upkeep
from cell.engines.storage_use import StorageUse
from cell.engines.wal_sources import RecoveryTarget, WalNeed
from cell.layout import Site, write_atomically
from cell.runtime import engine_files
from cell.runtime.confinement import Mount
from cell.runtime.engine_files import EnginePath
from cell.runtime.host import Host
from cell.runtime.own_threads import in_own_thread
from cell.runtime.process import Process
from cell.specification import Size, Spec

DUMP_TIMEOUT_S = 600.0
# Longer than a script runs before everybody else is told of it.
PULSE_TIMEOUT_S = 2 * SCRIPT_MS / 1000
LOOK_AGAIN_S = 0.05
# An engine that is busy for its owner has as long to take a credential.
TOLD_WITHIN_S = 30.0


class RespFamily:
    """The part that the two share; `servers` are newest first."""

    engine: str
    protocol = "resp"
    lent_share = 2.0
    dump_suffix = "rdb"
    file_format = "rdb"
    missing: EngineRefusal
    slow_start = SLOW_START
    code = "its function libraries"

    def __init__(self, host: Host, servers: list[ServerProgram]) -> None:
        self._host = host
        self._servers = servers
        self._storage_use = StorageUse()
        self._upkeep = Upkeep()
        self._writers = Writers(self._connected)
        self.wal = append_only.AppendOnlyFiles(self._connected)
        self.source = ", ".join(f"{each.origin} {each.release}" for each in servers) or "none found"

    def versions(self) -> tuple[str, ...]:
        return tuple(server.version for server in self._servers)

    def username(self, generation: int) -> str:  # noqa: ARG002 - the contract's
        return USERNAME

    def socket(self, site: Site) -> EnginePath:
        return site.socket

    async def provision(self, site: Site, spec: Spec) -> None:  # noqa: ARG002 - the contract's
        await asyncio.to_thread(files.clear_leftovers, site.data)

    async def start(self, site: Site, spec: Spec) -> Process:
        server = self._server(spec.engine_version)
        view = self._host.view(site)
        marks = await asyncio.to_thread(files.marks, site.data)
        content = configuration(view, RespLimits.of(spec.size), marks)
        self._write(site, CONFIGURATION, content)
        await asyncio.to_thread(engine_files.remove, site.socket)
        self._writers.started(site)
        binary = await asyncio.to_thread(self._host.program, server.binary)
        mounts = [Mount(binary.resolve(), binary, writable=False)] if server.must_be_mounted else []
        argv = [str(binary), str(view.configuration / CONFIGURATION)]
        return await self._host.start(site, argv, {}, spec.size, mounts=mounts)

    async def rewrite_log(self, site: Site, size: Size, room: Room) -> bool:
        try:
            async with self._connected(site, DUMP_TIMEOUT_S) as connection:
                return await rewrite(connection, size, room)
        except (OSError, RefusalError) as error:
            raise EngineError(f"the engine did not write its log anew: {error}") from error

    async def leave_out(self, site: Site) -> Callable[[], None] | None:
        logs = await asyncio.to_thread(files.log_files, site.data)
        changes = await functions.leave_out(logs)
        return partial(functions.put_back, changes) if changes else None

    async def stop(self, site: Site, process: Process, timeout_s: float) -> None:  # noqa: ARG002 - the contract's
        # Asked to end, the server writes and syncs its log.
        await process.stop(timeout_s)

    async def ready(self, site: Site, login: Login) -> bool:
        try:
            async with connected(str(site.socket), login) as connection:
                return await connection.ask("PING") == "PONG"
        except (OSError, RefusalError):
            return False

    async def is_loading(self, site: Site) -> bool:
        try:
            async with self._connected(site) as connection:
                await connection.ask("PING")
        except RefusalError as error:
            return str(error).startswith("LOADING")
        except OSError:
            return False
        return False

    async def health(self, site: Site, login: Login) -> Health:  # noqa: ARG002 - the contract's
        health = Health.SILENT
        with contextlib.suppress(OSError):
            try:
                async with self._connected(site, PULSE_TIMEOUT_S) as connection:
                    health = await _health(connection)
                    # A library that is deleted is written to the log, too.
                    if health is Health.WELL and not self._writers.wait(site):
                        await self._upkeep.look(connection, site)
            except RefusalError as error:
                return Health.FULL if is_full(error) else Health.WELL
        return health

    async def set_credentials(self, site: Site, logins: Sequence[Login]) -> str | None:
        async with self._writers.lock(site):
            return await self._set_credentials(site, logins)

    async def _set_credentials(self, site: Site, logins: Sequence[Login]) -> str | None:
        if self._host.find(site) is None:
            administrator.renew(site)
        tenant = rules_of(logins, self._writers.rules(site))
        ours = rules_of([administrator.login(self._host, site)], ADMINISTRATOR_RULES)
        self._write(site, USERS, users(tenant, ours))
        deadline = time.monotonic() + TOLD_WITHIN_S
        while (why := await self._told(site, tenant, ours)) is not None:
            if time.monotonic() > deadline:
                # Its owner's commands must not keep a credential alive: started anew, it has no
                # sessions and reads the file.
                if (process := self._host.find(site)) is None:
                    return None
                await process.kill()
                return f"it did not accept new credentials within {TOLD_WITHIN_S:.0f} s: {why}"
            await asyncio.sleep(LOOK_AGAIN_S)
        return None

    async def _told(self, site: Site, tenant: Sequence[str], ours: Sequence[str]) -> str | None:
        """None where the engine has these users now, or will when it starts; or why not."""
        try:
            async with self._connected(site) as connection:
                try:
                    # Loading the file would do as well, but ends all connections in 7.0.
                    await _set_users(connection, tenant, ours)
                except RefusalError as error:
                    if str(error).startswith("BUSY"):
                        await _health(connection)
                    raise
        except RefusalError as error:
            return str(error)
        except (FileNotFoundError, ConnectionRefusedError):
            # Not running: it reads the file when it starts.
            return None
        except OSError:
            return "it does not respond"
        return None

    async def resize(self, site: Site, process: Process, size: Size) -> bool:
        limits = RespLimits.of(size)
        words = [word for setting in limits.settings() for word in setting]
        try:
            async with self._connected(site) as connection:
                used = await connection.info("memory")
                if int(used["used_memory"]) > limits.memory_bytes:
                    raise EngineError(
                        f"its data uses {int(used['used_memory'])} bytes of memory, but the size "
                        f"has room for {limits.memory_bytes}"
                    )
                if int(used["used_memory_rss"]) > size.memory_bytes:
                    # Freed, but not given back: a new start does that.
                    return False
                self._host.resize(process, size)
                await connection.ask("CONFIG", "SET", *words)
        except (OSError, RefusalError) as error:
            raise EngineError(f"the engine rejected its size settings: {error}") from error
        return True

    async def upgrade(self, site: Site, former: Spec, spec: Spec) -> None:  # noqa: ARG002 - the contract's
        """Newer servers read what older ones wrote, and not the other way round."""
        new, old = self._server(spec.engine_version), _series(former.engine_version)
        if new.series < old:
            raise EngineError(
                f"{self.engine} {spec.engine_version} cannot read the data "
                f"of {former.engine_version}"
            )

    async def snapshot(
        self,
        site: Site,
        process: Process | None,
        login: Login,  # noqa: ARG002 - the contract's
        target: Path,
    ) -> Snapshot:
        if process is None:
            return await in_own_thread(files.copy_log, site.data, target)
        try:
            async with self._connected(site, DUMP_TIMEOUT_S) as connection:
                base, number = await base_anew(connection, site, process)
            need = WalNeed(None, time.time())
            return await in_own_thread(files.copy_base, base, number, target, need)
        except (OSError, RefusalError) as error:
            raise EngineError(f"the engine did not write its data: {error}") from error

    async def dump(self, site: Site, process: Process, login: Login, folder: Path) -> Path:  # noqa: ARG002 - the contract's
        written, target = site.data / DUMP, folder / DUMP
        try:
            async with self._connected(site, DUMP_TIMEOUT_S) as connection:
                await dumping.dump(connection, site, process)
            await in_own_thread(files.copy_dump, written, target)
        except (OSError, RefusalError) as error:
            raise EngineError(f"the engine did not write its data: {error}") from error
        finally:
            await asyncio.to_thread(engine_files.remove, written)
        return target

    def recognize(self, head: bytes) -> str | None:
        return files.dump_version(head)

    def prepare_file(self, file: Path, folder: Path, *, trusted: bool) -> None:
        files.take_dump(file, folder, trusted=trusted)

    async def restore(self, site: Site, source: Path) -> None:
        await in_own_thread(files.restore, self._host, site, source)

    async def recover(self, site: Site, source: Path, target: RecoveryTarget) -> None:
        """Its start reads the log, in whatever time that takes."""
        await in_own_thread(append_only.add_log, source, math.floor(target.at))
        await self.restore(site, source)

    async def examine(self, site: Site, login: Login) -> Contents:  # noqa: ARG002 - the contract's
        """All keys are in its memory by now, their checksums compared; there is one more look."""
        try:
            async with self._connected(site) as connection:
                return keyspace.contents(await connection.info("keyspace"))
        except (OSError, RefusalError) as error:
            raise EngineError(f"its keys cannot be counted: {error}") from error

    async def erase(self, site: Site) -> None:
        self._storage_use.forget(site)
        self._upkeep.forget(site)
        self._writers.forget(site)

    async def flush(self, site: Site) -> None:
        await asyncio.to_thread(files.flush, site.data)

    async def hold_writes(self, site: Site, room: Room) -> None:
        # One that does not answer now is looked at again.
        with contextlib.suppress(OSError, RefusalError):
            await self._writers.look(site, room)

    def refuse_writes(self, site: Site) -> None:
        self._writers.refuse(site)

    def metrics(self, site: Site, process: Process | None) -> Metrics:
        return measured(self._host, process, self._storage_use.count(site)[0])

    async def statements(self, site: Site, login: Login) -> int | None:  # noqa: ARG002 - the contract's
        with contextlib.suppress(OSError, RefusalError, LookupError, ValueError):
            async with self._connected(site) as connection:
                return int((await connection.info("stats"))["total_commands_processed"])
        return None

    def uri(self, login: Login, host: str, port: int) -> str:
        return f"rediss://{login.username}:{quote(login.password, safe='')}@{host}:{port}/0"

    def _server(self, version: str) -> ServerProgram:
        for server in self._servers:
            if server.version == version:
                return server
        raise EngineError(f"{self.engine} {version} is no longer installed on this machine")

    def _connected(
        self, site: Site, timeout_s: float = 10.0
    ) -> AbstractAsyncContextManager[RespConnection]:
        return connected(str(site.socket), administrator.login(self._host, site), timeout_s)

    def _write(self, site: Site, name: str, content: str) -> None:
        """What the engine reads and cannot write."""
        owner = self._host.owner(site)
        gid = -1 if owner is None else owner
        write_atomically(site.configuration / name, content.encode(), mode=0o640, gid=gid)


class Redis(RespFamily):
    engine = "redis"
    missing = EngineRefusal(
        "no redis-server of version 7.0 or newer is on the PATH of the cell's machine",
        "install redis-server on it (Debian: apt-get install redis-server), then restart the cell",
    )

    def __init__(self, host: Host) -> None:
        super().__init__(host, redis_servers())


class Valkey(RespFamily):
    engine = "valkey"
    missing = EngineRefusal(
        "no valkey-server that runs on the cell's machine was found",
        "run `make install` in Menagerie's folder on it, or install valkey-server (Debian: "
        "apt-get install valkey-server), then restart the cell",
    )

    def __init__(self, host: Host) -> None:
        super().__init__(host, valkey_servers())


async def _set_users(
    connection: RespConnection, tenant: Sequence[str], ours: Sequence[str]
) -> None:
    """As in the file: these users with these rules, and no others.

    Where a password ends, so do all connections: which of them came with it is not known.
    """
    # First, for the rules may be those of an earlier release.
    known = {ADMINISTRATOR: ours, "default": DEFAULT_RULES, USERNAME: tenant}
    for name in (ADMINISTRATOR, "default"):
        await connection.ask("ACL", "SETUSER", name, *known[name])
    former = await _passwords(connection)
    # Both or neither: told again, it would not know any more that a password ended.
    await connection.ask("MULTI")
    await connection.ask("ACL", "SETUSER", USERNAME, *tenant)
    if not former <= set(tenant):
        # After RESET, or before AUTH, a connection is that of the default user.
        for name in (USERNAME, "default"):
            await connection.ask("CLIENT", "KILL", "USER", name)
    await connection.ask_list("EXEC")
    for name in await connection.ask_list("ACL", "USERS"):
        if name not in known:
            await connection.ask("ACL", "DELUSER", name)


async def _passwords(connection: RespConnection) -> set[str]:
    """Those that the tenant has now, as their hashes."""
    users_ = (line.split() for line in await connection.ask_list("ACL", "LIST"))
    return {
        word for _, name, *words in users_ if name == USERNAME for word in words if word[0] == "#"
    }


async def _health(connection: RespConnection) -> Health:
    try:
        await connection.ask("PING")
    except RefusalError as error:
        if not str(error).startswith("BUSY"):
            return Health.WELL
    else:
        return Health.WELL
    for kind in ("SCRIPT", "FUNCTION"):
        try:
            await connection.ask(kind, "KILL")
        except RefusalError as error:
            if str(error).startswith("UNKILLABLE"):
                return Health.STUCK
    return Health.WELL


def _series(version: str) -> tuple[int, ...]:
    return tuple(map(int, version.split(".")))
