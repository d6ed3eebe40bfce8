"""The search engine with Meilisearch's API: served by our own process, one for each instance."""

import asyncio
import math
from collections.abc import Sequence
from importlib import metadata
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote

import httpx
import orjson

from cell.engines import file_snapshots
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
from cell.runtime.engine_files import EnginePath, Place
from cell.runtime.host import Host
from cell.runtime.own_threads import in_own_thread
from cell.runtime.process import Process
from cell.specification import Size, Spec

API_VERSION: Final = "1.54"
USERNAME: Final = "master"
KEYS: Final = "keys.json"
DATABASES: Final = ("data.db", "tasks.db")
# What is not in the database file yet, and what is made of it again when the engine opens it.
LOG, SHARED = "-wal", "-shm"
# Made again of the databases where it is missing.
DERIVED: Final = "candidates"
# There while that is being done, before anybody is answered.
OPENING: Final = "opening"
# Of the memory; while an index changes, its vectors are there twice.
VECTORS_PART: Final = 8
# Indexing has half of the memory; this much of it before the first task.
INDEXING_BYTES: Final = 48 * 2**20
# What parses JSON asks for twelve times its length, and what it makes of it is not small either.
TIMES_A_PAYLOAD: Final = 20
PAYLOAD_BYTES_MAX: Final = 100 * 2**20
REQUESTS_AT_ONCE: Final = 4
# Requests that wait for each of these. More are refused at once, which tells a client to ask less.
WAITING_FOR_ONE: Final = 128
# One index may be as large as all the data.
READ_TIMEOUT_S: Final = 6 * 3600.0


class SearchEngine:
    engine = "meilisearch"
    protocol = "https"
    # Changed settings write what filters read once more, in one transaction, before the former is
    # free: into a log as long as that, beside a database that fills its storage.
    ceiling_share = 1.6
    slow_start = (
        "what searching needs is made again when an instance begins with a copy, and that takes as "
        "long as it has documents; choose a larger size"
    )
    missing = EngineRefusal(
        "the package tantivy is not installed with Menagerie",
        "run `make install` in Menagerie's folder on the cell's machine",
    )

    def __init__(self, host: Host) -> None:
        self._host = host
        self._storage_use = StorageUse()
        found = _installed()
        self.source = f"Menagerie's own, on PyPI tantivy {found or 'not installed'}"

    def versions(self) -> tuple[str, ...]:
        """That of the API: what is behind it is applied with Menagerie's own releases."""
        return (API_VERSION,) if _installed() else ()

    def username(self, generation: int) -> str:  # noqa: ARG002 - the contract's
        """A word for where a name is asked for: the API knows keys alone."""
        return USERNAME

    def socket(self, site: Site) -> EnginePath:
        return site.socket

    async def provision(self, site: Site, spec: Spec) -> None: ...

    async def start(self, site: Site, spec: Spec) -> Process:
        view = self._host.view(site)
        python = await self._host.python()
        size = spec.size
        threads = max(REQUESTS_AT_ONCE, math.ceil(size.vcpu))
        argv = [
            *(python.program, "-P", "-m", "instance_services.search"),
            *("--socket", str(view.run / site.socket.name)),
            *("--data", str(view.data)),
            *("--keys", str(view.configuration / KEYS)),
            *("--threads", str(threads)),
            *("--waiting", str(threads * WAITING_FOR_ONE)),
            *("--body-bytes", str(payload_bytes(size.memory_bytes))),
            *("--indexing-bytes", str(size.memory_bytes // 2)),
            *("--vector-bytes", str(size.memory_bytes // VECTORS_PART)),
            *("--storage-bytes", str(size.storage_bytes)),
        ]
        await asyncio.to_thread(engine_files.remove, site.socket)
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
        try:
            answers = [
                await ask(str(site.socket), "GET", "/version", bearer=login.password),
                await ask(str(site.socket), "GET", "/health"),
            ]
        except httpx.HTTPError:
            return False
        return all(answer.status_code == httpx.codes.OK for answer in answers)

    async def is_loading(self, site: Site) -> bool:
        return engine_files.find(site.data / OPENING) is not None

    async def health(self, site: Site, login: Login) -> Health:  # noqa: ARG002 - the contract's
        try:
            # Where indexing has ended, it says so, and starts it again itself.
            await ask(str(site.socket), "GET", "/health")
        except httpx.HTTPError:
            return Health.SILENT
        return Health.WELL

    async def set_credentials(self, site: Site, logins: Sequence[Login]) -> None:
        # Not as digests: the values of an instance's other keys are made of them.
        content = orjson.dumps([login.password for login in logins])
        owner = self._host.owner(site)
        gid = -1 if owner is None else owner
        write_atomically(site.configuration / KEYS, content, mode=0o640, gid=gid)

    async def resize(self, site: Site, process: Process, size: Size) -> bool:  # noqa: ARG002 - the contract's
        """Memory, threads and storage are fixed when the process starts."""
        return False

    async def upgrade(self, site: Site, former: Spec, spec: Spec) -> None: ...

    async def snapshot(
        self,
        site: Site,
        process: Process | None,
        login: Login,  # noqa: ARG002 - the contract's
        target: Path,
    ) -> Snapshot:
        if process is None:
            return await in_own_thread(file_snapshots.copy, _files, site.data, target)
        # Held still for the copy, so that both databases and their logs are of one moment. The
        # engine reads them as after a crash.
        return await in_own_thread(file_snapshots.copy_held, process, _files, site.data, target)

    async def restore(self, site: Site, source: Path) -> None:
        derived = [*(f"{each}{SHARED}" for each in DATABASES), DERIVED]
        await in_own_thread(file_snapshots.restore, self._host, site, source, _files, derived)

    async def examine(self, site: Site, login: Login) -> Contents:
        """By the engine, which reads every document, and each page of its database."""
        found = await _told(site, login, "/contents", READ_TIMEOUT_S)
        try:
            counted = [
                (uid, each["documents"], each["digest"]) for uid, each in found["indexes"].items()
            ]
            return Contents.of(
                [*counted, ("keys", found["keys"])], rows=sum(int(each[1]) for each in counted)
            )
        except (LookupError, TypeError, ValueError, AttributeError) as error:
            raise EngineError("the engine did not say what its data is") from error

    async def erase(self, site: Site) -> None:
        self._storage_use.forget(site)

    def metrics(self, site: Site, process: Process | None) -> Metrics:
        return measured(self._host, process, self._storage_use.count(site)[0])

    async def statements(self, site: Site, login: Login) -> int | None:
        try:
            return int((await _told(site, login, "/statistics"))["requests"])
        except (EngineError, LookupError, TypeError, ValueError):
            return None

    def uri(self, login: Login, host: str, port: int) -> str:
        return f"https://{login.username}:{quote(login.password, safe='')}@{host}:{port}"


def payload_bytes(memory_bytes: int) -> int:
    """The largest body that the service of a size takes: one that indexing has the memory for."""
    own_bytes = memory_bytes // 2 - INDEXING_BYTES
    return max(2**20, min(PAYLOAD_BYTES_MAX, own_bytes // TIMES_A_PAYLOAD))


async def _told(site: Site, login: Login, path: str, timeout_s: float = 10.0) -> Any:
    """Raises EngineError where the engine does not say it."""
    try:
        answer = await ask(
            str(site.socket), "GET", path, bearer=login.password, timeout_s=timeout_s
        )
    except httpx.HTTPError as error:
        raise EngineError("the engine did not respond") from error
    if answer.status_code != httpx.codes.OK:
        raise EngineError("the data cannot be read")
    try:
        return answer.json()
    except ValueError as error:
        raise EngineError("the engine did not say what its data is") from error


def _installed() -> str | None:
    try:
        return metadata.version("tantivy")
    except metadata.PackageNotFoundError:
        return None


def _files(directory: Place) -> list[str]:
    """The databases, and their logs."""
    names = [f"{database}{part}" for database in DATABASES for part in ("", LOG)]
    return [name for name in names if engine_files.find(directory / name) is not None]
