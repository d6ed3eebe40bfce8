"""DuckDB: a library, served by our own process, one for each instance."""

import asyncio
import hashlib
import math
import os
import time
from collections.abc import Sequence
from importlib import metadata
from pathlib import Path
from typing import Any
from urllib.parse import quote

import httpx
import orjson

from cell.engines import file_snapshots, leftover_files
from cell.engines.contents import Contents
from cell.engines.driver import (
    EngineError,
    EngineRefusal,
    Health,
    Login,
    Metrics,
    Snapshot,
    measured,
)
from cell.engines.http import ask
from cell.engines.storage_use import StorageUse
from cell.layout import Site, write_atomically
from cell.runtime import engine_files
from cell.runtime.confinement import Mount
from cell.runtime.engine_files import EnginePath, Place
from cell.runtime.engine_folders import INSIDE
from cell.runtime.host import Host
from cell.runtime.own_threads import in_own_thread
from cell.runtime.process import LaunchError, Process
from cell.specification import Size, Spec

DATABASE = "database.duckdb"
# In a database file, after the checksum of its first block; the version of the format follows.
MAGIC_AT, MAGIC = 8, b"DUCK"
USERNAME = "app"
SPILLED = "temp"
# What the kernel keeps for the process, and what it maps of files, count against the size as well.
UNASKED_SHARE = 0.05
UNASKED_MIN_BYTES = 52 * 2**20
# The interpreter and its libraries; of what is left, a share for what the engine does not count.
INTERPRETER_BYTES = 140 * 2**20
MEMORY_SHARE = 0.75
CHECKPOINT_TIMEOUT_S = 60.0
# One table may be as large as all the data.
READ_TIMEOUT_S = 6 * 3600.0
QUOTE = '"'
TABLES = """
SELECT database_name, schema_name, table_name FROM duckdb_tables() WHERE NOT internal
"""
# What the engine says of its database, in files beside it; how long its owner is told.
TROUBLE = "trouble"
OPENING = "opening"
NOTICE = "notice"
NOTICE_DAYS = 7.0
NOTICE_BYTES_MAX = 1_000
SAID_CHARACTERS = 200
DAY_S = 86_400.0
# An engine that opens a file goes through its log, and leaves none when it closes it.
MERGED = "merged"
MERGE = "import duckdb, sys; duckdb.connect(sys.argv[1], config={'memory_limit': '256MB'}).close()"
MERGE_TIMEOUT_S = 600.0


class DuckDB:
    engine = "duckdb"
    protocol = "https"
    # A checkpoint after a deletion writes what stays of a table before it frees the rest: of data
    # that fills its storage, the file may get twice as long.
    ceiling_share = 1.6
    dump_suffix = "duckdb"
    file_format = "duckdb"
    missing = EngineRefusal(
        "the package duckdb is not installed with Menagerie",
        "run `make install` in Menagerie's folder on the cell's machine",
    )

    def __init__(self, host: Host) -> None:
        self._host = host
        self._storage_use = StorageUse()
        self.source = f"PyPI duckdb {_installed() or 'not installed'}"

    def versions(self) -> tuple[str, ...]:
        """The series of the installed release: patches are not ordered but applied."""
        found = _installed()
        return (".".join(found.split(".")[:2]),) if found else ()

    def username(self, generation: int) -> str:  # noqa: ARG002 - the contract's
        return USERNAME

    def socket(self, site: Site) -> EnginePath:
        return site.socket

    async def provision(self, site: Site, spec: Spec) -> None:  # noqa: ARG002 - the contract's
        await asyncio.to_thread(leftover_files.remove, site.data, f"{SPILLED}/duckdb_temp_.*")

    async def start(self, site: Site, spec: Spec) -> Process:
        view = self._host.view(site)
        python = await self._host.python()
        size = spec.size
        process_bytes, engine_bytes = memory_limits(size.memory_bytes)
        argv = [
            *(python.program, "-P", "-m", "instance_services.duckdb"),
            *("--socket", str(view.run / site.socket.name)),
            *("--data", str(view.data / DATABASE)),
            *("--users", str(view.configuration / "users.json")),
            *("--memory-bytes", str(engine_bytes), "--process-bytes", str(process_bytes)),
            *("--threads", str(threads(size.vcpu))),
            *("--temp-directory", str(view.data / SPILLED)),
            *("--temp-bytes", str(size.storage_bytes)),
            *("--storage-bytes", str(size.storage_bytes)),
        ]
        for left in (site.socket, site.data / TROUBLE):
            await asyncio.to_thread(engine_files.remove, left)
        environment = {
            **python.environment,
            # Read-only inside: no point in trying to write what was compiled.
            "PYTHONDONTWRITEBYTECODE": "1",
        }
        return await self._host.start(site, argv, environment, size)

    async def stop(self, site: Site, process: Process, timeout_s: float) -> None:  # noqa: ARG002 - the contract's
        await process.stop(timeout_s)

    async def ready(self, site: Site, login: Login) -> bool:
        if engine_files.find(site.socket) is None:
            return False
        # Neither waits for the request that runs: a query would, and tell nothing of the login.
        credential = (login.username, login.password)
        try:
            answers = [
                await ask(str(site.socket), "GET", "/version", login=credential),
                await ask(str(site.socket), "GET", "/health"),
            ]
        except httpx.HTTPError:
            return False
        return all(answer.status_code == httpx.codes.OK for answer in answers)

    async def health(self, site: Site, login: Login) -> Health:  # noqa: ARG002 - the contract's
        try:
            # Its process replaces itself where a statement does not end.
            await ask(str(site.socket), "GET", "/health")
        except httpx.HTTPError:
            return Health.SILENT
        return Health.WELL

    async def set_credentials(self, site: Site, logins: Sequence[Login]) -> None:
        # Passwords have 256 random bits, so their plain hash tells nothing.
        digests = [hashlib.sha256(login.password.encode()).hexdigest() for login in logins]
        content = orjson.dumps({USERNAME: digests})
        path = site.configuration / "users.json"
        owner = self._host.owner(site)
        write_atomically(path, content, mode=0o640, gid=-1 if owner is None else owner)

    async def resize(self, site: Site, process: Process, size: Size) -> bool:  # noqa: ARG002 - the contract's
        """Memory, threads and storage are fixed when the process starts."""
        return False

    async def upgrade(self, site: Site, former: Spec, spec: Spec) -> None: ...

    async def snapshot(
        self, site: Site, process: Process | None, login: Login, target: Path
    ) -> Snapshot:
        if process is None:
            return await in_own_thread(file_snapshots.copy, _files, site.data, target)
        try:
            answer = await _query(site, login, "CHECKPOINT", CHECKPOINT_TIMEOUT_S)
        except httpx.HTTPError as error:
            raise EngineError("the engine did not respond to the checkpoint") from error
        if answer.status_code != httpx.codes.OK:
            raise EngineError(f"the checkpoint was refused with status {answer.status_code}")
        # Held still for the copy, so that file and log are of one moment. What was written since
        # the checkpoint is in the log, and the engine reads that as after a crash.
        return await in_own_thread(file_snapshots.copy_held, process, _files, site.data, target)

    async def dump(self, site: Site, process: Process, login: Login, folder: Path) -> Path:
        await self.snapshot(site, process, login, folder)
        if (folder / f"{DATABASE}.wal").exists():
            await self._merge(site, folder)
        return folder / DATABASE

    async def _merge(self, site: Site, folder: Path) -> None:
        """What was written since the checkpoint into the file, by an engine of the owner's user."""
        scratch = folder / MERGED
        await in_own_thread(_hand_over, folder, EnginePath(scratch), self._host.owner(site))
        inside = INSIDE / MERGED if self._host.hides_files else scratch
        python = await self._host.python()
        words = [python.program, "-P", "-c", MERGE, str(inside / DATABASE)]
        mounts = [Mount(scratch, INSIDE / MERGED, writable=True)]
        try:
            await self._host.run(
                site, words, python.environment, mounts=mounts, timeout_s=MERGE_TIMEOUT_S
            )
        except LaunchError as error:
            raise EngineError("the engine could not put the dump into one file") from error
        await in_own_thread(_take_over, EnginePath(scratch), folder)

    def recognize(self, head: bytes) -> str | None:
        if head[MAGIC_AT : MAGIC_AT + len(MAGIC)] != MAGIC:
            return None
        version = int.from_bytes(head[MAGIC_AT + 4 : MAGIC_AT + 12], "little")
        return f"storage version {version}"

    def prepare_file(self, file: Path, folder: Path, *, trusted: bool) -> None:  # noqa: ARG002 - the contract's
        """The engine checks each block by its checksum in any case."""
        folder.mkdir(mode=0o700)
        file.rename(folder / DATABASE)

    async def restore(self, site: Site, source: Path) -> None:
        await in_own_thread(file_snapshots.restore, self._host, site, source, _files)

    async def examine(self, site: Site, login: Login) -> Contents:
        """As its owner, who is the only one there: every value of every table is read."""
        counted = []
        for name in await _rows(site, login, TABLES):
            place = ".".join(f'"{part.replace(QUOTE, 2 * QUOTE)}"' for part in name)
            query = f"SELECT count(*), bit_xor(hash(t)) FROM {place} AS t"  # noqa: S608 - quoted
            counted.append((name, await _rows(site, login, query)))
        return Contents.of(counted, rows=sum(int(found[0][0]) for _, found in counted))

    def database(self, site: Site) -> Path:
        """Where what runs in the site's sandbox finds the file."""
        return self._host.view(site).data / DATABASE

    async def rows(self, site: Site, login: Login, sql: str) -> list[list[Any]]:
        """What a query answers. Raises EngineError."""
        return await _rows(site, login, sql)

    async def erase(self, site: Site) -> None:
        self._storage_use.forget(site)

    def metrics(self, site: Site, process: Process | None) -> Metrics:
        storage_bytes = self._storage_use.count(site)[0]
        return measured(self._host, process, storage_bytes, _said(site.data / NOTICE, NOTICE_DAYS))

    async def statements(self, site: Site, login: Login) -> int | None:
        credential = (login.username, login.password)
        try:
            answer = await ask(str(site.socket), "GET", "/statistics", login=credential)
            return int(answer.json()["queries"])
        except (httpx.HTTPError, LookupError, TypeError, ValueError):
            # One that an earlier release started does not know.
            return None

    def why_not_started(self, site: Site, process: Process) -> str | None:
        if (trouble := _said(site.data / TROUBLE)) is not None:
            return trouble
        opening = _said(site.data / OPENING)
        return None if opening is None else f"{process.exit_reason}; {opening}"

    def uri(self, login: Login, host: str, port: int) -> str:
        return f"https://{login.username}:{quote(login.password, safe='')}@{host}:{port}"


async def _query(site: Site, login: Login, sql: str, timeout_s: float = 10.0) -> httpx.Response:
    credential = (login.username, login.password)
    return await ask(
        str(site.socket), "POST", "/query", login=credential, body={"sql": sql}, timeout_s=timeout_s
    )


async def _rows(site: Site, login: Login, sql: str) -> list[list[Any]]:
    """Raises EngineError where the engine cannot read them."""
    try:
        answer = await _query(site, login, sql, READ_TIMEOUT_S)
    except httpx.HTTPError as error:
        raise EngineError("the engine did not respond") from error
    if answer.status_code != httpx.codes.OK:
        said = answer.text[:SAID_CHARACTERS]
        raise EngineError(f"the data cannot be read: {said}")
    found: list[list[Any]] = answer.json()["rows"]
    return found


def threads(vcpu: float) -> int:
    """As many as the size pays for, and no more than there are CPUs: each needs memory."""
    return max(1, min(math.ceil(vcpu), os.cpu_count() or 1))


def memory_limits(size_bytes: int) -> tuple[int, int]:
    """What the process may ask for, below what ends it; and of that what the engine may count."""
    unasked_bytes = max(UNASKED_MIN_BYTES, int(size_bytes * UNASKED_SHARE))
    process_bytes = size_bytes - unasked_bytes
    return process_bytes, int(max(0, process_bytes - INTERPRETER_BYTES) * MEMORY_SHARE)


def _installed() -> str | None:
    try:
        return metadata.version("duckdb")
    except metadata.PackageNotFoundError:
        return None


def _said(place: EnginePath, days: float = math.inf) -> str | None:
    """What the engine wrote for its owner, who may have changed it if he broke out of SQL."""
    try:
        with engine_files.opened(place) as descriptor:
            if time.time() - os.fstat(descriptor).st_mtime > days * DAY_S:
                return None
            text = os.read(descriptor, NOTICE_BYTES_MAX).decode(errors="replace")
    except OSError:
        return None
    return "".join(each for each in text if each.isprintable()) or None


def _files(directory: Place) -> list[str]:
    """The database, its log, and what says that nobody was told of what is in the log."""
    names = (DATABASE, f"{DATABASE}.wal", f"{DATABASE}.unacknowledged")
    return [name for name in names if engine_files.find(directory / name) is not None]


def _hand_over(folder: Path, scratch: EnginePath, owner: int | None) -> None:
    engine_files.make_folder(scratch, owner)
    for name in (DATABASE, f"{DATABASE}.wal"):
        engine_files.copy_file(folder / name, scratch / name, owner)
        (folder / name).unlink()


def _take_over(scratch: EnginePath, folder: Path) -> None:
    """Copied: what the tool's user could still hold open is not what is sent."""
    engine_files.copy_file(scratch / DATABASE, folder / DATABASE)
    engine_files.remove(scratch)
