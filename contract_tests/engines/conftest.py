"""Fixtures of the engines' contract: each driver this machine can run, and a place to run it."""

import asyncio
import contextlib
import os
import secrets
import shutil
import signal
from collections.abc import Callable, Coroutine, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest
from ulid import ULID

from cell.engines import PACKAGES, find
from cell.engines.driver import Driver, Login
from cell.layout import Layout, Site
from cell.runtime.host import Host
from cell.runtime.process import Process
from cell.specification import Size, Spec
from contract_tests.engine_logs import watched
from contract_tests.engines.lent_servers import Given, Lender
from contract_tests.engines.speakers import OLDER_VERSIONS, SPEAKERS, Speaker

SIZE = Size("s0", 0.5, 2**30, 20 * 10**9, 60)
# The first of ten that are each worker's own: what is found, counted or ended by its user is this
# worker's, and a cell without control groups ends all that runs as the user of its instance.
UID = 298_000 + 10 * int(os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw"))
START_S = 60.0


@pytest.fixture(scope="session")
def host(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Host]:
    """The host, with all the confinement it has; whatever ran on it is ended."""
    home = Layout.make(tmp_path_factory.mktemp("engines") / "cell").home
    made = Host(str(home), f"test-{os.getpid()}", PACKAGES, key=os.urandom(32))
    yield made
    for pid in made.strays():
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    made.close()


@pytest.fixture(scope="session")
def layout(host: Host) -> Iterator[Layout]:
    """Where engines can go."""
    made = host.settle(Layout.make(host.home))
    yield made
    for outside in {made.sockets, made.open} - {made.home, made.home / "run"}:
        shutil.rmtree(outside, ignore_errors=True)


@pytest.fixture
def loop() -> Iterator[Callable[[Coroutine[Any, Any, Any]], Any]]:
    """Runs coroutines on one event loop, which a test's engines live with."""
    with asyncio.Runner() as runner:
        yield runner.run


@dataclass
class Subject:
    """One instance of one engine, driven without a cell around it."""

    driver: Driver
    speaker: Speaker
    host: Host
    site: Site
    spec: Spec
    run: Callable[[Coroutine[Any, Any, Any]], Any]
    login: Login
    process: Process | None = field(default=None)
    generation: int = 1

    def provision(self) -> None:
        self.site.make(self.host.owner(self.site))
        self.accept(self.login)
        self.run(self.driver.provision(self.site, self.spec))

    def accept(self, *logins: Login) -> None:
        self.run(self.driver.set_credentials(self.site, logins))

    def start(self) -> None:
        self.process = self.run(self.driver.start(self.site, self.spec))
        self.run(self._until_ready())

    def stop(self) -> None:
        assert self.process is not None
        self.run(self.driver.stop(self.site, self.process, 10))
        self.host.forget(self.site)
        self.process = None

    def kill(self) -> None:
        assert self.process is not None
        self.process.signal(signal.SIGKILL)
        self.run(self.process.ended())
        self.process = None

    def works(self, login: Login) -> bool:
        return bool(self.run(self.driver.ready(self.site, login)))

    def outside(self, number: int) -> int:
        """The pid, here, of the server's process that has this number within its sandbox."""
        assert self.process is not None
        for pid in self.process.tree():
            with contextlib.suppress(OSError):
                status = Path(f"/proc/{pid}/status").read_text()
                if int(status.partition("\nNSpid:")[2].partition("\n")[0].split()[-1]) == number:
                    return pid
        raise AssertionError(f"no process of the server has the number {number}")

    def new_login(self) -> Login:
        """The credential of the next generation, as a rotation makes it."""
        self.generation += 1
        return Login(self.driver.username(self.generation), secrets.token_urlsafe(32))

    async def _until_ready(self) -> None:
        assert self.process is not None
        async with asyncio.timeout(START_S):
            while not await self.driver.ready(self.site, self.login):
                assert self.process.alive, self.site.log.read_text()[-2000:]
                await asyncio.sleep(0.02)


# Older versions have their turn at night; see postgres_sessions.py.
SUBJECTS = [
    *(pytest.param((engine, None), id=engine) for engine in sorted(SPEAKERS)),
    *(pytest.param(each, id="-".join(each), marks=pytest.mark.nightly) for each in OLDER_VERSIONS),
]
# One driver runs both, and the contract holds for both: the second has its turn at night.
on_either_resp = pytest.mark.parametrize(
    "subject", ["valkey", pytest.param("redis", marks=pytest.mark.nightly)], indirect=True
)


@pytest.fixture(params=SUBJECTS)
def subject(
    request: pytest.FixtureRequest,
    host: Host,
    layout: Layout,
    loop: Callable[[Coroutine[Any, Any, Any]], Any],
) -> Iterator[Subject]:
    """Provisioned and not started; skipped where this machine cannot run the engine."""
    with _provisioned(_given(request.param), host, layout, loop) as made:
        yield made


@pytest.fixture(scope="module")
def _of_the_file(host: Host, layout: Layout) -> Iterator[Callable[[Given], Subject]]:
    with asyncio.Runner() as runner, contextlib.ExitStack() as stack:
        made: dict[Given, Subject] = {}

        def started(given: Given) -> Subject:
            if given not in made:
                begun = stack.enter_context(_provisioned(given, host, layout, runner.run))
                begun.start()
                made[given] = begun
            return made[given]

        yield started


@pytest.fixture
def shared(
    request: pytest.FixtureRequest,
    lender: Lender,
    _of_the_file: Callable[[Given], Subject],
) -> Subject:
    """Started once for all tests of a file that leave it as it is, but for objects of their own."""
    given = _given(request.param)
    if given[0] == "postgres":
        return lender.lend(given, request.path)
    return _of_the_file(given)


@pytest.fixture(scope="session")
def lender(host: Host, layout: Layout) -> Iterator[Lender]:
    with asyncio.Runner() as runner:
        made = Lender(lambda given: _provisioned(given, host, layout, runner.run))
        yield made
        made.close()


@pytest.fixture
def lent(request: pytest.FixtureRequest, lender: Lender) -> Subject:
    """A running PostgreSQL as it is when it is new; others had it before, and will after."""
    return lender.lend(_given(request.param))


def _given(parameter: str | Given) -> Given:
    """A test of one engine names it alone, and gets the newest version."""
    return (parameter, None) if isinstance(parameter, str) else parameter


@contextlib.contextmanager
def _provisioned(
    given: Given,
    host: Host,
    layout: Layout,
    loop: Callable[[Coroutine[Any, Any, Any]], Any],
) -> Iterator[Subject]:
    engine, version = given
    driver = find(host).drivers.get(engine)
    if driver is None or (version is not None and version not in driver.versions()):
        pytest.skip(f"no driver found {engine} {version or ''} on this machine")
    instance_id = f"inst_{ULID()}"
    site = layout.site(instance_id, UID)
    version = version or driver.versions()[0]
    spec = Spec(engine, version, SIZE, "x.local.localhost", None, None, 86400.0)
    # What is archived does more: such as MariaDB, which has its binary log then.
    spec = replace(spec, continuous_archiving=True)
    login = Login(driver.username(1), secrets.token_urlsafe(32))
    made = Subject(driver, SPEAKERS[engine], host, site, spec, loop, login)
    with watched(lambda: [site.log], lambda: {instance_id: host.memory_kills(site)}):
        made.provision()
        yield made
    if made.process is not None and made.process.alive:
        made.kill()
    host.forget(site)
    for folder in (site.directory, site.run.outside):
        shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture
def running(subject: Subject) -> Subject:
    subject.start()
    return subject


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "snapshot"
