"""PostgreSQL, and what is made of it: a server of its own for each instance."""

import asyncio
import contextlib
import signal
import threading
import time
from collections.abc import Iterable, Sequence
from functools import partial
from pathlib import Path
from urllib.parse import quote

import psycopg

from cell.engines.contents import Contents
from cell.engines.driver import EngineError, Health, Login, Metrics, Room, Snapshot, measured
from cell.engines.increments import CopyMark, PackedCopy
from cell.engines.packed_snapshots import ArchiveOutput
from cell.engines.postgres import (
    archive,
    autovacuum,
    backup,
    changed_passwords,
    configuration,
    connections,
    data_folder,
    discarding,
    dumps,
    ended_logins,
    examination,
    extensions,
    increments,
    leftovers,
    lockouts,
    logins,
    replacing,
    roles,
    scram,
    server,
    sources,
    statistics,
    storage,
    taking_over,
    transactions,
    unowned_files,
    upgrade,
)
from cell.engines.postgres.archive import Packing
from cell.engines.postgres.configuration import POSTGRES, TIMESCALEDB, Family
from cell.engines.postgres.connections import NotRunningError, PostgresHeldUpError
from cell.engines.postgres.installation import SECRET, Installation, Installations
from cell.engines.postgres.sources import Source
from cell.engines.postgres.spare_templates import Spares
from cell.engines.postgres.wal import WalReplication
from cell.engines.wal_sources import RecoveryTarget
from cell.layout import Site
from cell.runtime.engine_files import EnginePath
from cell.runtime.host import Host
from cell.runtime.own_threads import in_own_thread
from cell.runtime.process import Process
from cell.runtime.tools import ToolCommand
from cell.specification import Size, Spec

# Says that the superuser still has the password of the template.
FRESH = "fresh"
APPLY_FOR_S = 30.0
# A server that answers and refuses: sessions may take what it has for as long as they want.
HELD_UP_FOR_S = 5.0
# All that is done for it, of which each part has a limit of its own.
APPLY_WITHIN_S = 90.0
LOOK_AGAIN_S = 0.1


class PostgreSQL:
    """The superuser's password is derived for each instance; only the driver logs in with it."""

    protocol = "postgres"
    lent_share = 1.5
    dump_suffix = "dump"
    snapshot_archive = archive.NAME

    def __init__(
        self, host: Host, family: Family = POSTGRES, found: Iterable[Source] | None = None
    ) -> None:
        self.engine = family.engine
        self.missing = family.missing
        self._host = host
        self._family = family
        self._sources = sources.usable(found, family.extension)
        self._installations = Installations(host, family)
        # As they were last ensured: to look at all their files takes milliseconds.
        self._installed: dict[str, Installation] = {}
        self._spares = Spares()
        self.wal = WalReplication(host, self.installation, self.superuser)
        self.autovacuum = autovacuum.Autovacuum(host)
        self.counts = statistics.Counts()
        # The server's files are written by the event loop, and where use is measured.
        self._writing = threading.Lock()
        self._discarding = discarding.Discarding()
        self._storage_limit = storage.PostgresStorageLimit(host, self._writing)
        self.unowned_files = unowned_files.UnownedFiles()
        self.source = sources.named(self._sources.values())

    def versions(self) -> tuple[str, ...]:
        """Major versions: patches are not ordered but applied."""
        return tuple(self._sources)

    def extensions(self) -> dict[str, list[str]]:
        return {major: extensions.creatable(each) for major, each in self._sources.items()}

    def username(self, generation: int) -> str:
        """A role has one password, so each credential after the first has a role."""
        return roles.OWNER if generation == 1 else f"{roles.OWNER}_{generation}"

    def socket(self, site: Site) -> EnginePath:
        return site.run / configuration.SOCKET

    async def provision(self, site: Site, spec: Spec) -> None:
        if await asyncio.to_thread(data_folder.prepare, site):
            return
        installation = await self.installation(spec.engine_version, site)
        await asyncio.to_thread(self._copy, installation, site)
        self._spares.refill(installation)

    async def start(self, site: Site, spec: Spec) -> Process:
        await asyncio.to_thread(data_folder.finish, site)
        # An upgrade whose end the cell did not live to see has changed the data already.
        version = data_folder.major(site) or spec.engine_version
        installation = await self.installation(version, site)
        self.autovacuum.hold(site)
        given = (self._host, self._family, installation, site, spec.size)
        await asyncio.to_thread(server.write_configuration, *given)
        await logins.begin(site, logins.of_cell(self._host, site))
        self._discarding.begin(site)
        return await server.launch(*given)

    async def stop(self, site: Site, process: Process, timeout_s: float) -> None:  # noqa: ARG002 - the contract's
        await server.stop(process, timeout_s)

    async def ready(self, site: Site, login: Login) -> bool:
        if not data_folder.takes_logins(site):
            return False
        try:
            if not logins.applied(site):
                await self._apply(site, [login])
            async with connections.as_owner(site.run, login) as connection:
                await connection.execute("SELECT 1")
        except (NotRunningError, connections.LoginError, PostgresHeldUpError):
            return False
        except psycopg.Error as error:
            # Full for the owner, not for us: what could not be told yet is no login that works.
            return logins.applied(site) and connections.is_full(error)
        return True

    async def is_loading(self, site: Site) -> bool:
        """After a crash it goes through what was not yet in its tables."""
        return data_folder.is_starting(site)

    async def health(self, site: Site, login: Login) -> Health:
        try:
            async with connections.as_owner(site.run, login):
                return Health.WELL
        except NotRunningError as error:
            return Health.WELL if connections.is_said(error.__cause__) else Health.SILENT
        except connections.WrongPasswordError:
            return Health.CHANGED
        except psycopg.Error as error:
            return Health.FULL if connections.is_exhausted(error) else Health.WELL

    async def set_credentials(self, site: Site, logins_: Sequence[Login]) -> str | None:
        former = logins.wanted(site)
        await logins.remember(site, [*logins_, logins.of_cell(self._host, site)])
        try:
            await self.counts.end(site)
            await self._apply_soon(site, logins_)
        except connections.LoginError:
            # Those that work go on doing so, also after the next start.
            logins.keep(site, former)
            raise
        except PostgresHeldUpError as error:
            # Its owner's statements must not keep a credential alive: told at its next start.
            if (process := self._host.find(site)) is not None:
                await server.quit_at_once(process)
                return f"it did not accept new credentials: {error}"
        return None

    def proofs(self, site: Site) -> dict[str, str]:
        return {name: scram.without_login(each) for name, each in logins.of_clients(site).items()}

    async def restore_logins(self, site: Site) -> list[str]:
        wanted = await logins.with_cells(site, logins.of_cell(self._host, site))
        return await changed_passwords.restore(site.run, self.superuser(site), wanted)

    async def resize(self, site: Site, process: Process, size: Size) -> bool:
        installation = await self.installation(data_folder.major(site) or "", site)
        former = (site.configuration / configuration.FILE).read_bytes()
        given = (self._family, installation.source, size, self._host.view(site))
        if configuration.needs_restart(former, wanted := configuration.content(*given)):
            return False
        with self._writing:
            server.write(self._host, site, configuration.FILE, wanted)
        # The limit may be another.
        self._storage_limit.forget(site)
        process.signal(signal.SIGHUP)
        self._host.limit_cpu(process, size.vcpu)
        return True

    async def check_upgrade(self, site: Site, spec: Spec) -> None:
        if data_folder.major(site) != spec.engine_version:
            await upgrade.check(site, self.superuser(site))

    async def upgrade(self, site: Site, former: Spec, spec: Spec) -> None:  # noqa: ARG002 - the data says
        await asyncio.to_thread(data_folder.finish, site)
        found, wanted = data_folder.major(site), spec.engine_version
        if found is None or found == wanted:
            return
        if int(wanted) < int(found):
            raise EngineError(f"PostgreSQL {found} cannot be downgraded to {wanted}")
        await in_own_thread(self._stage, site)
        old = await self.installation(found, site)
        new = await self.installation(wanted, site)
        async with replacing.replacing(site) as next_site:
            pair = (old, site), (new, next_site)
            await upgrade.upgrade(self._host, self._family, self._installations, *pair)

    async def finish(self, site: Site) -> None:
        await self.counts.run(site, self.superuser(site), int(data_folder.major(site) or 0))

    async def snapshot(
        self,
        site: Site,
        process: Process | None,
        login: Login,  # noqa: ARG002 - the contract's
        target: Path,
    ) -> Snapshot:
        with contextlib.closing(await asyncio.to_thread(archive.ArchiveFile, target)) as output:
            return await backup.copy(site, self.superuser(site), process, Packing(output))

    async def pack(
        self,
        site: Site,
        process: Process | None,
        login: Login,  # noqa: ARG002 - the contract's
        output: ArchiveOutput,
    ) -> Snapshot:
        packing = Packing(output, archive.UNPACKED)
        return await backup.copy(site, self.superuser(site), process, packing)

    async def pack_since(
        self, site: Site, process: Process | None, output: ArchiveOutput, former: CopyMark | None
    ) -> PackedCopy:
        login = self.superuser(site)
        return await increments.copy(self._host, site, login, process, output, former)

    async def dump_command(self, site: Site, login: Login, database: str) -> ToolCommand:
        installation = await self.installation(data_folder.major(site) or "", site)
        return dumps.command(self._host, installation, site, login, database)

    async def restore(self, site: Site, source: Path, target: RecoveryTarget | None = None) -> None:
        async with replacing.replacing(site) as next_site:
            data, owner = await in_own_thread(self._stage, site), self._host.owner(site)
            await in_own_thread(archive.fill, source, data, owner)
            if target is not None:
                given = (source / taking_over.WAL, next_site.data, self._host.owner(site))
                await in_own_thread(taking_over.add_wal, *given)
            installation = await self.installation(data_folder.major(next_site) or "", site)
            whose = (self._host, self._family, installation, site, next_site)
            await taking_over.take_over(*whose, self.superuser(site), target)
        (site.directory / FRESH).unlink(missing_ok=True)

    recover = restore

    async def check_files(self, site: Site) -> None:
        installation = await self.installation(data_folder.major(site) or "", site)
        await examination.check_files(self._host, self._installations, installation, site)

    async def examine(self, site: Site, login: Login) -> Contents:  # noqa: ARG002 - the contract's
        return await examination.examine(site, self.superuser(site))

    async def erase(self, site: Site) -> None:
        self._storage_limit.forget(site)
        self.unowned_files.forget(site)
        await self._discarding.until_done(site)

    def metrics(self, site: Site, process: Process | None) -> Metrics:
        if process is not None:
            self.autovacuum.look(site, process)
        return measured(self._host, process, self._storage_limit.look(site, process))

    async def hold_writes(self, site: Site, room: Room) -> None:
        self.unowned_files.look(site, self.superuser(site))
        await self._storage_limit.end_writers(site, self.superuser(site))
        await self._storage_limit.make_room(site, self.superuser(site), room)

    def refuse_writes(self, site: Site) -> None:
        self._storage_limit.refuse_writes(site)

    async def statements(self, site: Site, login: Login) -> int | None:  # noqa: ARG002 - the contract's
        return await transactions.count(site.run, self.superuser(site))

    def uri(self, login: Login, host: str, port: int) -> str:
        credential = f"{login.username}:{quote(login.password, safe='')}"
        return f"postgresql://{credential}@{host}:{port}/{roles.DATABASE}?sslmode=verify-full"

    async def installation(self, major: str, site: Site) -> Installation:
        source = self._sources.get(major)
        if source is None:
            raise EngineError(f"PostgreSQL {major} is not available in this cell")
        found = self._installed[major] = await self._installations.ensure(source, site)
        return found

    def superuser(self, site: Site) -> Login:
        return Login(roles.SUPERUSER, self._host.secret(site, "postgres"))

    def _stage(self, site: Site) -> EnginePath:
        """The data of empty folders beside the site's own."""
        data_folder.clear(site)
        data_folder.staged(site).make(self._host.owner(site))
        return data_folder.staged(site).data

    def _copy(self, installation: Installation, site: Site) -> None:
        """The template, in place of nothing."""
        owner = self._host.owner(site)
        data = self._stage(site)
        if not self._spares.take(installation, data, owner):
            archive.unpack(installation.template, data, owner)
        (site.directory / FRESH).touch(mode=0o600)
        data_folder.replace(site)

    async def _apply_soon(self, site: Site, tried: Sequence[Login]) -> None:
        """A server that does not run is told at its next start, before anybody is let in.

        One that runs may recover from a crash of one session; HeldUpError where it takes nobody
        for longer, or does not do as it is told, for whatever reason: sessions that it has go on.
        """
        began = time.monotonic()
        while True:
            try:
                async with asyncio.timeout(APPLY_WITHIN_S):
                    return await self._apply(site, tried)
            except TimeoutError as error:
                raise PostgresHeldUpError(
                    f"that took longer than {APPLY_WITHIN_S:.0f} s"
                ) from error
            except (NotRunningError, psycopg.Error) as error:
                if not data_folder.takes_logins(site) or self._host.find(site) is None:
                    return None
                wait_s = APPLY_FOR_S if connections.is_gone(error) else HELD_UP_FOR_S
                if time.monotonic() - began > wait_s:
                    raise PostgresHeldUpError(connections.reason(error)) from error
            await asyncio.sleep(LOOK_AGAIN_S)

    async def _apply(self, site: Site, tried: Sequence[Login]) -> None:
        """Raises NotRunningError where no server takes logins."""
        fresh = site.directory / FRESH
        if fresh.exists():
            secret = self._host.secret(self._installations.template_site(), SECRET)
            # Refused where a cell died after it had done this and before it was noted.
            with contextlib.suppress(psycopg.OperationalError):
                await self._tell(site, Login(roles.SUPERUSER, secret), tried)
        if not logins.applied(site):
            await self._tell(site, self.superuser(site), tried)
        fresh.unlink(missing_ok=True)

    async def _tell(self, site: Site, login: Login, tried: Sequence[Login]) -> None:
        """The logins there are to be, and the superuser's password where it is another yet.

        Those that are tried must work before any other ends.
        """
        superuser, wanted = self.superuser(site), logins.wanted(site)
        async with (
            connections.administration(site.run, login) as connection,
            connections.unhindered(connection, site.run, login),
        ):
            await self.autovacuum.end(site, connection)
            async with connection.transaction():
                if login != superuser:
                    await roles.set_password(connection, scram.verifier(superuser.password))
                await roles.allow(connection, wanted)
                await lockouts.lift_settings(connection, list(wanted))
            for each in tried:
                await connections.try_login(site.run, each)
            await lockouts.let_clients_in(connection, site.run, tried)
            async with connection.transaction():
                former = await roles.forbid_others(connection, wanted)
            await ended_logins.end_sessions(connection, former)
            await roles.give_back_orphans(connection)
            # By the server itself: what a file of its data says may be wrong.
            major = connection.info.server_version // 10_000
        if login == superuser:
            # A new cluster still has the template's, and nobody has had a login to leave anything.
            installation = self._installed.get(str(major))
            installation = installation or await self.installation(str(major), site)
            await leftovers.clear(site.run, superuser, installation)
        logins.mark_applied(site)
        await ended_logins.take_apart(site.run, superuser, former, major)


TimescaleDB = partial(PostgreSQL, family=TIMESCALEDB)
