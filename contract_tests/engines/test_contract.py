"""The contract of drivers: the same promises, whatever the engine."""

import contextlib
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from cell.engines import DRIVERS, FoundEngines, find
from cell.engines.driver import CountsStatements
from cell.layout import Layout
from cell.runtime.host import Host
from cell.runtime.process import MARK
from contract_tests import skips
from contract_tests.engines.conftest import SUBJECTS, Subject
from contract_tests.engines.speakers import SPEAKERS

on_each = pytest.mark.parametrize("shared", SUBJECTS, indirect=True)


def begin(shared: Subject) -> None:
    """The test before may have stopped it."""
    if shared.process is None:
        shared.start()


def test_every_driver_is_held_to_the_contract(host: Host) -> None:
    assert {make(host).engine for make in DRIVERS} == set(SPEAKERS)


def test_only_what_can_run_is_reported(host: Host) -> None:
    found = find(host)
    assert all(driver.versions() for driver in found.drivers.values())
    assert found.drivers.keys() | found.refused.keys() == set(SPEAKERS)
    assert not found.drivers.keys() & found.refused.keys()
    assert find(host, ("no-such-engine",)) == FoundEngines({}, {})


# What each machine has on which `make test` may install what it needs, or where CI runs.
EVERYWHERE = {"duckdb", "mariadb", "meilisearch", "postgres", "redis", "valkey"}
POSTGRES_VERSIONS = {"18", "17", "16", "15"}


@pytest.mark.skipif(not skips.are_held(), reason="this machine need not have all engines")
def test_a_machine_with_all_engines_finds_them(host: Host) -> None:
    found = find(host)
    assert found.drivers.keys() >= EVERYWHERE, found.refused
    assert set(found.drivers["postgres"].versions()) >= POSTGRES_VERSIONS


def test_an_engine_that_is_not_installed_says_what_would_help(
    host: Host, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as bare:
        bare.setenv("PATH", "/nowhere")
        bare.setattr(sys.modules["cell.engines.mysql.servers"], "FURTHER", ())
        refused = find(host, ("mariadb", "mysql", "redis")).refused
    assert "install mariadb-server" in refused["mariadb"].remedy
    assert "install redis-server" in refused["redis"].remedy
    assert "mysql-server" in refused["mysql"].remedy


@on_each
def test_logins_are_those_that_were_set_and_no_others(shared: Subject) -> None:
    begin(shared)
    new = shared.new_login()
    assert shared.works(shared.login)
    assert not shared.works(new)
    # The overlap of a rotation, and its end, without a restart.
    shared.accept(new, shared.login)
    assert shared.works(new)
    assert shared.works(shared.login)
    shared.accept(new)
    assert shared.works(new)
    assert not shared.works(shared.login)
    uri = shared.driver.uri(new, "some.host", 8443)
    assert new.password in uri
    assert "some.host:8443" in uri
    shared.login = new


@on_each
def test_what_was_committed_survives_stop_and_kill(shared: Subject) -> None:
    begin(shared)
    shared.speaker.make(shared.site, shared.login)
    shared.speaker.write(shared.site, shared.login, [1, 2])
    shared.stop()
    assert not shared.works(shared.login)
    shared.start()
    shared.speaker.write(shared.site, shared.login, [3])
    shared.kill()
    shared.start()
    assert shared.speaker.read(shared.site, shared.login) == [1, 2, 3]


@on_each
def test_a_snapshot_of_a_running_engine_restores_what_was_committed(
    shared: Subject, folder: Path
) -> None:
    begin(shared)
    shared.speaker.make(shared.site, shared.login)
    shared.speaker.write(shared.site, shared.login, range(100))
    made = shared.run(shared.driver.snapshot(shared.site, shared.process, shared.login, folder))
    files = [path for path in folder.rglob("*") if path.is_file()]
    assert made.size_bytes == sum(path.stat().st_size for path in files)
    # It goes on as before, and what comes later is not in the copy.
    shared.speaker.write(shared.site, shared.login, [1000])
    shared.stop()
    shared.run(shared.driver.restore(shared.site, folder))
    shared.start()
    assert shared.speaker.read(shared.site, shared.login) == list(range(100))


@pytest.mark.nightly
@on_each
def test_a_snapshot_of_a_stopped_engine_restores_too(shared: Subject, folder: Path) -> None:
    begin(shared)
    shared.speaker.make(shared.site, shared.login)
    shared.speaker.write(shared.site, shared.login, [5])
    shared.stop()
    made = shared.run(shared.driver.snapshot(shared.site, None, shared.login, folder))
    again = shared.run(
        shared.driver.snapshot(shared.site, None, shared.login, folder.with_name("again"))
    )
    assert made == again
    shared.start()
    shared.speaker.write(shared.site, shared.login, [6])
    shared.stop()
    shared.run(shared.driver.restore(shared.site, folder))
    shared.start()
    assert shared.speaker.read(shared.site, shared.login) == [5]


@on_each
def test_statements_are_counted(shared: Subject) -> None:
    """From the start of the engine on; of one that does not run nothing is told."""
    begin(shared)
    driver = shared.driver
    assert isinstance(driver, CountsStatements)
    shared.speaker.make(shared.site, shared.login)
    before = shared.run(driver.statements(shared.site, shared.login))
    shared.speaker.write(shared.site, shared.login, [7])
    # PostgreSQL counts what a session did once it is over, or a moment later.
    end = time.monotonic() + 10
    while (after := shared.run(driver.statements(shared.site, shared.login))) <= before:
        assert time.monotonic() < end
        time.sleep(0.05)
    assert 0 <= before < after < before + 100
    shared.stop()
    assert shared.run(driver.statements(shared.site, shared.login)) is None


@on_each
def test_use_is_measured(shared: Subject) -> None:
    begin(shared)
    shared.speaker.make(shared.site, shared.login)
    shared.speaker.write(shared.site, shared.login, range(1000))
    used = shared.driver.metrics(shared.site, shared.process)
    assert used.memory_bytes > 2**20
    assert used.cpu_s > 0
    assert used.storage_bytes > 0
    shared.stop()
    resting = shared.driver.metrics(shared.site, None)
    assert (resting.memory_bytes, resting.cpu_s) == (0, 0)
    assert resting.storage_bytes > 0


@on_each
def test_an_engine_is_told_nothing_of_the_service_or_its_home(
    shared: Subject, layout: Layout, monkeypatch: pytest.MonkeyPatch
) -> None:
    if shared.process is not None:
        shared.stop()
    monkeypatch.setenv("MENAGERIE_HOME", str(layout.home))
    monkeypatch.setenv("MENAGERIE_DATABASE_URL", "postgresql://menagerie:secret@nowhere/menagerie")
    shared.start()
    assert shared.process is not None
    for given in _environments(psutil.Process(shared.process.pid)):
        assert [name for name in given if name.startswith("MENAGERIE_")] in ([], [MARK])
        # Without bubblewrap a service of ours finds its packages where the cell put them.
        said = {n: v for n, v in given.items() if n not in ("PYTHONPATH", "LD_LIBRARY_PATH", "PWD")}
        assert not [name for name, value in said.items() if str(layout.home) in value]
        assert "secret" not in str(given)


def _environments(engine: psutil.Process) -> Iterator[dict[str, str]]:
    yield engine.environ()
    for each in engine.children(recursive=True):
        # One that served a session may end meanwhile.
        with contextlib.suppress(psutil.NoSuchProcess):
            yield each.environ()


@on_each
def test_another_size_is_taken_at_once_or_by_a_new_start(shared: Subject) -> None:
    begin(shared)
    assert shared.process is not None
    larger = shared.spec.resized(shared.spec.size.__class__("s1", 1.0, 2**31, 10**10, 100))
    taken = shared.run(shared.driver.resize(shared.site, shared.process, larger.size))
    if not taken:
        shared.stop()
        shared.spec = larger
        shared.start()
    assert shared.works(shared.login)


@on_each
def test_the_engine_can_be_found_again(shared: Subject) -> None:
    begin(shared)
    found = shared.host.find(shared.site)
    assert found == shared.process
    shared.stop()
    assert shared.host.find(shared.site) is None
    assert shared.host.strays(shared.site) == []
    assert shared.site.log.exists()
    shared.run(shared.driver.erase(shared.site))
    shared.run(shared.driver.erase(shared.site))
