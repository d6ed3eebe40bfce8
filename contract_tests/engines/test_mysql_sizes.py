"""What a size decides on MariaDB, templates, and upgrades."""

import asyncio
import contextlib
import shutil
from pathlib import Path

import pymysql
import pytest
from ulid import ULID

from cell.engines.driver import EngineError
from cell.engines.mysql import options
from cell.engines.mysql.dialects import MARIADB
from cell.engines.mysql.driver import mariadb
from cell.engines.mysql.templates import Templates
from cell.layout import Layout
from cell.runtime import engine_files
from cell.runtime.host import Host
from cell.runtime.process import LaunchError
from cell.specification import Size, Spec
from contract_tests.by_day import one_in
from contract_tests.cell.rig import until
from contract_tests.engines.conftest import UID, Subject
from contract_tests.engines.mysql_sessions import (
    administrator,
    driver_of,
    on_mariadb,
    rows,
    session,
)

GIB = 2**30
SIZES = [
    Size("f0", 0.063, GIB // 2, 10**9, 20),
    Size("s0", 0.25, GIB, 20 * 10**9, 60),
    Size("s1", 0.5, 2 * GIB, 50 * 10**9, 100),
    Size("s2", 1, 4 * GIB, 200 * 10**9, 200),
    Size("m2", 2, 8 * GIB, 500 * 10**9, 400),
    Size("m4", 4, 16 * GIB, 10**12, 800),
    Size("l8", 8, 32 * GIB, 4 * 10**12, 1500),
    Size("l16", 16, 64 * GIB, 8 * 10**12, 3000),
    Size("xl32", 32, 128 * GIB, 16 * 10**12, 5000),
]


def test_larger_sizes_have_more_of_everything() -> None:
    pools = [options.buffer_pool_bytes(size) for size in SIZES]
    logs = [options.log_bytes(size) for size in SIZES]
    assert pools == sorted(set(pools))
    assert logs == sorted(logs)
    for size, pool, log in zip(SIZES, pools, logs, strict=True):
        assert pool + size.connections_max * 2**20 < size.memory_bytes * 0.8
        assert 16 * 2**20 <= log <= max(16 * 2**20, size.storage_bytes // 32)
        assert options.changeable(size)["max_user_connections"] == size.connections_max


@on_mariadb
def test_a_server_has_what_its_size_says(running: Subject) -> None:
    size = running.spec.size
    wanted = {**MARIADB.changeable(size), **MARIADB.fixed(size)}
    for name, value in wanted.items():
        assert str(rows(running, f"SELECT @@GLOBAL.{name}")[0][0]) == str(value), name
    durable = "SELECT @@innodb_flush_log_at_trx_commit, @@innodb_doublewrite, @@sync_binlog"
    assert rows(running, durable) == [(1, 1, 1)]
    assert rows(running, "SELECT @@character_set_server, @@time_zone") == [("utf8mb4", "+00:00")]


@on_mariadb
def test_growing_needs_no_new_start_unless_threads_are_to_be_shared(running: Subject) -> None:
    def resize(size: Size) -> bool:
        assert running.process is not None
        return bool(running.run(running.driver.resize(running.site, running.process, size)))

    larger = Size("s1", 0.5, 2 * GIB, 50 * 10**9, 100)
    assert resize(larger)
    assert rows(running, "SELECT @@max_user_connections") == [(100,)]
    pool = rows(running, "SELECT @@innodb_buffer_pool_size")[0][0]
    assert pool == options.buffer_pool_bytes(larger)
    # Memory is given back by a new start only, and how threads are made is decided there.
    assert not resize(running.spec.size)
    assert not resize(SIZES[4])
    running.stop()
    running.spec = running.spec.resized(SIZES[4])
    running.start()
    assert rows(running, "SELECT @@thread_handling, @@thread_pool_size") == [("pool-of-threads", 2)]


def sessions(subject: Subject) -> int:
    """How many the server counts of the owner's."""
    found = "SELECT COUNT(*) FROM information_schema.processlist WHERE user = 'app'"
    with session(subject.site, administrator(subject), database=None) as cursor:
        cursor.execute(found)
        return int(cursor.fetchone()[0])


@on_mariadb
def test_connections_are_kept_for_the_cell(running: Subject) -> None:
    """The owner's are used up, and the cell still sets passwords."""
    count = running.spec.size.connections_max
    with contextlib.ExitStack() as held:
        until(lambda: sessions(running) == 0, "nobody who looked at its start is left")
        for _ in range(count):
            held.enter_context(session(running.site, running.login))
        with pytest.raises(pymysql.err.MySQLError, match="max_user_connections"):
            rows(running, "SELECT 1")
        newer = running.new_login()
        running.accept(newer)
    # The server counts those who hung up until it comes to each of them.
    until(lambda: running.works(newer), "there is room again")


@pytest.mark.nightly
@on_mariadb
def test_one_template_is_made_for_two_who_want_it(
    subject: Subject, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    host, server = subject.host, next(iter(driver_of(subject).servers.values()))
    home = Layout.make(tmp_path / "cell").home
    monkeypatch.setattr(Host, "home", property(lambda _: home))
    left = home / "templates" / "making-gone"
    left.mkdir(parents=True)
    installs = []
    run = Host.run

    async def counted(self: Host, *words: object, **options: object) -> bytes:
        installs.append(words)
        return await run(self, *words, **options)  # type: ignore[arg-type]

    monkeypatch.setattr(Host, "run", counted)
    templates = Templates(host, MARIADB)

    async def both() -> None:
        await asyncio.gather(*(templates.find(server, subject.site) for _ in range(2)))

    subject.run(both())
    assert len(installs) == 1
    assert [path.name for path in (home / "templates").iterdir()] == [f"mariadb-{server.version}"]
    # Small, as it is copied for each instance.
    assert sum(path.stat().st_size for path in (home / "templates").rglob("*")) < 44 * 2**20


@on_mariadb
def test_a_template_that_cannot_be_made_leaves_nothing(
    subject: Subject, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = Layout.make(tmp_path / "cell").home
    monkeypatch.setattr(Host, "home", property(lambda _: home))

    async def refused(*words: object, **options: object) -> bytes:
        raise LaunchError("mariadb-install-db failed: no space")

    monkeypatch.setattr(Host, "run", refused)
    server = next(iter(driver_of(subject).servers.values()))
    with pytest.raises(LaunchError, match="no space"):
        subject.run(Templates(subject.host, MARIADB).find(server, subject.site))
    assert list((home / "templates").iterdir()) == []


def _as(spec: Spec, version: str) -> Spec:
    return Spec(spec.engine, version, spec.size, spec.host, None, None, 86400.0)


@pytest.mark.nightly
@on_mariadb
def test_data_goes_to_a_later_server_and_never_back(running: Subject) -> None:
    rows(running, "CREATE TABLE numbers AS SELECT 42 AS n")
    running.stop()
    upgrade = running.driver.upgrade
    running.run(upgrade(running.site, running.spec, running.spec))
    with pytest.raises(EngineError, match="cannot be opened"):
        running.run(upgrade(running.site, _as(running.spec, "99.9"), running.spec))
    # Only one series is installed here: the way is gone, its length is not.
    running.run(upgrade(running.site, _as(running.spec, "10.6"), running.spec))
    assert [path.name for path in running.site.data.outside.glob("db*")] == ["db"]
    running.start()
    assert rows(running, "SELECT n FROM numbers") == [(42,)]
    assert running.works(administrator(running))


@pytest.mark.nightly
@on_mariadb
def test_a_failed_upgrade_leaves_the_data_as_it_was(
    running: Subject, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows(running, "CREATE TABLE numbers AS SELECT 42 AS n")
    running.stop()
    driver = driver_of(running)
    command = driver.command
    monkeypatch.setattr(driver, "command", lambda *given: [*command(*given), "--no-such-option"])
    with pytest.raises(EngineError, match="does not start"):
        running.run(driver.upgrade(running.site, _as(running.spec, "10.6"), running.spec))
    monkeypatch.undo()
    assert [path.name for path in running.site.data.outside.glob("db*")] == ["db"]
    running.start()
    assert rows(running, "SELECT n FROM numbers") == [(42,)]


class Killed(BaseException):
    """The cell, at this moment."""


@pytest.mark.nightly
@on_mariadb
@pytest.mark.parametrize("fault", one_in(2, [Killed, OSError]))
@pytest.mark.parametrize("at", one_in(2, [1, 2]))
def test_an_upgrade_that_is_cut_short_loses_nothing(
    running: Subject, monkeypatch: pytest.MonkeyPatch, at: int, fault: type[BaseException]
) -> None:
    """Between two renames the data lies beside its place, where nothing else may be put."""
    rows(running, "CREATE TABLE numbers AS SELECT 42 AS n")
    running.stop()
    renames, rename = [0], engine_files.rename

    def faulty(*places: engine_files.Place) -> None:
        renames[0] += 1
        if renames[0] == at:
            raise fault
        rename(*places)

    monkeypatch.setattr(engine_files, "rename", faulty)
    with pytest.raises(EngineError if fault is OSError else fault):
        running.run(running.driver.upgrade(running.site, _as(running.spec, "10.6"), running.spec))
    monkeypatch.undo()
    running.provision()
    running.start()
    assert rows(running, "SELECT n FROM numbers") == [(42,)]
    assert [path.name for path in running.site.data.outside.glob("db*")] == ["db"]


@on_mariadb
def test_nothing_is_upgraded_where_nothing_is(subject: Subject, layout: Layout) -> None:
    site = layout.site(f"inst_{ULID()}", UID + 2)
    site.make(subject.host.owner(site))
    subject.run(subject.driver.upgrade(site, _as(subject.spec, "10.6"), subject.spec))
    assert list(site.data.outside.iterdir()) == []


@pytest.mark.nightly
@on_mariadb
def test_a_server_runs_where_nothing_confines_it(subject: Subject, tmp_path: Path) -> None:
    closed = Layout.make(tmp_path / "cell")
    host = Host(str(closed.home), "open", (), confine=False, key=b"k")
    layout = host.settle(closed)
    site = layout.site(f"inst_{ULID()}", UID + 3)
    bare = Subject(
        mariadb(host), subject.speaker, host, site, subject.spec, subject.run, subject.login
    )
    bare.provision()
    bare.start()
    rows(bare, "CREATE TABLE numbers AS SELECT 42 AS n")
    taken = bare.run(
        bare.driver.snapshot(bare.site, bare.process, bare.login, tmp_path / "snapshot")
    )
    assert taken.size_bytes > 2**20
    bare.stop()
    if layout.open != layout.home:
        shutil.rmtree(layout.open)
