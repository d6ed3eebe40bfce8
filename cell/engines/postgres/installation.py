"""What a cell keeps of a source for all its instances: the programs, and a template cluster.

Programs are linked or copied, so that extensions that are safe for owners of databases can be made
trusted, which somebody else's installation does not let us say.
"""

import asyncio
import contextlib
import fcntl
import hashlib
import os
import pwd
import shutil
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path

from cell.engines.driver import EngineError
from cell.engines.postgres import archive, builtin_functions, extensions, roles, scram, searches
from cell.engines.postgres.configuration import Family
from cell.engines.postgres.sources import Source
from cell.layout import Site
from cell.runtime import disks, engine_files
from cell.runtime.confinement import NOBODY, Mount
from cell.runtime.engine_files import EnginePath
from cell.runtime.host import Host
from cell.runtime.process import LaunchError

TEMPLATE_VERSION = 4
INSIDE = Path("/opt/postgres")
SPARES = 2
# Of the list of functions.
FUNCTIONS_BYTES_MAX = 2**26
INITDB_TIMEOUT_S = 120.0
SECRET = "template"  # noqa: S105 - a purpose
BUILTIN_LOCALES_SINCE = 17
_LEFT_OUT = shutil.ignore_patterns("*.a", "pgxs", "pkgconfig", "man", "doc", "locale")


@dataclass(frozen=True)
class Installation:
    """The programs of one source as this cell keeps them, for one engine.

    `binaries` is where engines find them; `mounts` are what they must see for that.
    """

    source: Source
    folder: Path
    template: Path
    binaries: Path
    mounts: tuple[Mount, ...]

    @property
    def spares(self) -> list[Path]:
        """Where copies of the template lie that an instance may take."""
        name = self.template.name
        return [self.template.with_name(f"{name}-spare-{each}") for each in range(SPARES)]

    @property
    def functions(self) -> Path:
        """The server's own, as they are in a new cluster."""
        return self.template / builtin_functions.FILE

    def program(self, name: str) -> str:
        return str(self.binaries / name)


@contextlib.contextmanager
def alone(folder: Path) -> Iterator[None]:
    """Nobody else makes anything here meanwhile; what one that died began is removed."""
    for each in (folder.parent, folder):
        each.mkdir(exist_ok=True)
        each.chmod(0o711)
    lock = os.open(folder / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX)
        for left in folder.glob("making-*"):
            engine_files.remove(left)
        yield
    finally:
        os.close(lock)


class Installations:
    """Below the cell's home; made when first needed, and once."""

    def __init__(self, host: Host, family: Family) -> None:
        self._host = host
        self._family = family
        self._folder = host.home / "engines" / "postgres"

    def template_site(self) -> Site:
        """Names the secret that the superuser of a template has until its first start."""
        return Site("postgres-template", 0, self._folder, EnginePath(self._folder))

    async def ensure(self, source: Source, site: Site) -> Installation:
        """`site` lends its uid and its folder for sockets to what runs while a template is made."""
        key = await asyncio.to_thread(_key, source)
        found = self._installation(source, key)
        if found.folder.exists() and found.template.exists():
            return found
        async with _in_thread(alone(self._folder)):
            if not found.folder.exists():
                await asyncio.to_thread(self._link, source, found.folder)
            if not found.template.exists():
                try:
                    await self._make(found, site)
                except LaunchError as error:
                    raise EngineError(
                        f"the template cluster could not be created: {error}"
                    ) from error
        return found

    async def initialise(self, installation: Installation, site: Site) -> None:
        """A new cluster with nothing but the superuser, who has no password, in the site's data."""
        major = int(installation.source.major)
        view = self._host.view(site)
        words = [
            *(installation.program("initdb"), "-D", str(view.data), "-U", roles.SUPERUSER),
            # Nobody; who is let in is said elsewhere.
            *("-A", "reject", "-E", "UTF8", "--no-sync", "--data-checksums", "--no-instructions"),
            "--locale=C.UTF-8",
        ]
        if major >= BUILTIN_LOCALES_SINCE:
            # Sorts by code point, the same on every machine and in every later version.
            words += ["--locale-provider=builtin", "--builtin-locale=C.UTF-8"]
        await self.run(installation, site, words, timeout_s=INITDB_TIMEOUT_S)

    async def run(
        self,
        installation: Installation,
        site: Site,
        argv: list[str],
        *,
        mounts: tuple[Mount, ...] = (),
        content: bytes = b"",
        timeout_s: float = 60.0,
    ) -> bytes:
        """A tool that asks the system for its user's name, which an instance's uid has not."""
        if self._host.hides_files:
            uid = os.geteuid() if self._host.owner(site) is None else site.uid
            path = site.directory / "passwd"
            path.write_text(f"{roles.SUPERUSER}:x:{uid}:{uid}::/:/bin/sh\n")
            path.chmod(0o644)
            mounts = (*mounts, Mount(path, Path("/etc/passwd"), writable=False))
        given = (*installation.mounts, *mounts)
        return await self._host.run(
            site, argv, {}, mounts=given, content=content, timeout_s=timeout_s
        )

    def _installation(self, source: Source, key: str) -> Installation:
        root = _root(source)
        folder = self._folder / key
        name = f"{self._family.engine}-v{TEMPLATE_VERSION}"
        seen = INSIDE if self._host.hides_files else folder / "programs"
        mounts = (Mount(folder / "programs", INSIDE, writable=False),)
        binaries = seen / source.binaries.relative_to(root)
        template = self._folder / f"{key}-{name}"
        return Installation(source, folder, template, binaries, mounts)

    def _link(self, source: Source, folder: Path) -> None:
        making = self._folder / "making-programs"
        root = _root(source)
        for each in source.folders:
            shutil.copytree(
                each,
                making / "programs" / each.relative_to(root),
                ignore=_LEFT_OUT,
                copy_function=_link_or_copy,
                ignore_dangling_symlinks=True,
                dirs_exist_ok=True,
            )
        extensions.trust(making / "programs" / source.share.relative_to(root) / "extension")
        for path in (making, *(each for each in making.rglob("*") if each.is_dir())):
            path.chmod(0o755)
        disks.synchronise(making)
        making.rename(folder)

    async def _make(self, installation: Installation, site: Site) -> None:
        """The programs run in a site of their own that looks like the asking one."""
        host = self._host
        uid = site.uid
        if not host.hides_files and host.owner(site) is not None:
            # The system must know the user's name, and this one is known everywhere.
            uid = pwd.getpwnam("nobody").pw_uid if _known("nobody") else NOBODY
        made = Site(site.instance_id, uid, self._folder / "making-cluster", site.run)
        try:
            made.make(host.owner(made))
            await self.initialise(installation, made)
            await self._fill(installation, made)
            packed = self._folder / "making-template"
            functions = bytes.fromhex(
                engine_files.read(made.data / builtin_functions.FILE, FUNCTIONS_BYTES_MAX).decode()
            )
            await asyncio.to_thread(engine_files.remove, made.data / builtin_functions.FILE)
            await asyncio.to_thread(archive.pack, made.data, packed)
            (packed / builtin_functions.FILE).write_bytes(functions)
            packed.rename(installation.template)
            with contextlib.suppress(OSError):
                engine_files.rename(made.data, installation.spares[0])
            await asyncio.to_thread(engine_files.remove, made.directory)
        finally:
            site.make(host.owner(site))

    async def _fill(self, installation: Installation, made: Site) -> None:
        secret = self._host.secret(self.template_site(), SECRET)
        major = int(installation.source.major)
        path = self._host.view(made).data / builtin_functions.FILE
        await self._single(installation, made, "postgres", [builtin_functions.WRITE.format(path)])
        for database in searches.NAMES:
            await self._single(installation, made, database, searches.DENY)
        cluster = roles.cluster_statements(major, scram.verifier(secret))
        await self._single(installation, made, "postgres", cluster)
        if self._family.extension is not None:
            statement = f"CREATE EXTENSION {self._family.extension}"
            await self._single(installation, made, roles.DATABASE, [statement])

    async def _single(
        self, installation: Installation, site: Site, database: str, statements: Sequence[str]
    ) -> None:
        """Runs statements in a server without clients, each by itself, until one fails."""
        preload = self._family.extension or ""
        words = [
            *(installation.program("postgres"), "--single", "-j"),
            *("-D", str(self._host.view(site).data)),
            *("-c", "exit_on_error=on", "-c", f"shared_preload_libraries={preload}"),
            *("-c", "log_min_error_statement=panic", "-c", "log_checkpoints=off"),
            # The archive is synchronised, and each copy of it is.
            *("-c", "fsync=off", database),
        ]
        content = "".join(f"{each};\n\n" for each in statements).encode()
        await self.run(installation, site, words, content=content)


@contextlib.asynccontextmanager
async def _in_thread(waiting: AbstractContextManager[None]) -> AsyncIterator[None]:
    """Enters what may take a while to be entered."""
    await asyncio.to_thread(waiting.__enter__)
    try:
        yield
    finally:
        waiting.__exit__(None, None, None)


def _key(source: Source) -> str:
    """Changes with everything that a template is made from."""
    digest = hashlib.sha256(" ".join(sorted(extensions.SAFE)).encode())
    watched = (source.binaries, source.share / "extension", source.libraries)
    for folder in watched:
        for path in sorted(folder.iterdir()):
            found = path.stat() if path.exists() else path.lstat()
            digest.update(f"{path}\0{found.st_size}\0{found.st_mtime_ns}\n".encode())
    return f"{source.version}-{digest.hexdigest()[:12]}"


def _root(source: Source) -> Path:
    """What its folders have in common: programs find each other by how they lie to one another."""
    return Path(os.path.commonpath(source.folders))


def _link_or_copy(source: str, target: str) -> str:
    real = os.path.realpath(source)
    try:
        os.link(real, target)
    except OSError:
        # Another file system, or a file of somebody else's.
        shutil.copy2(real, target)
    return target


def _known(name: str) -> bool:
    try:
        pwd.getpwnam(name)
    except KeyError:
        return False
    return True
