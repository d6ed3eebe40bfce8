"""What becomes of a cluster: copied, branched, upgraded, killed, and given another size."""

import os
import secrets
import shutil
import threading
import time
from dataclasses import replace
from pathlib import Path

import psycopg
import pytest
from ulid import ULID

from cell.engines.driver import EngineError, Login
from cell.engines.postgres import PostgreSQL
from cell.layout import Layout
from cell.specification import Size
from contract_tests.engines.conftest import UID, Subject
from contract_tests.engines.postgres_sessions import (
    ask,
    every_version_lent,
    newest,
    newest_lent,
    session,
    upgraded,
    value,
)

OPTIONS = (
    "SELECT attoptions FROM pg_attribute WHERE attname = 'n' AND attrelid = 'filled'::regclass"
)
SETTING = "SELECT setting || coalesce(unit, '') FROM pg_settings WHERE name = '{}'"


def another(subject: Subject, layout: Layout) -> Subject:
    """An instance of its own, with nothing in it."""
    site = layout.site(f"inst_{ULID()}", UID + 1)
    login = Login(subject.driver.username(1), secrets.token_urlsafe(32))
    made = replace(subject, site=site, login=login, process=None)
    made.site.make(made.host.owner(made.site))
    made.accept(login)
    return made


@pytest.mark.nightly
@every_version_lent
def test_a_branch_has_the_data_and_none_of_the_logins(
    lent: Subject, layout: Layout, folder: Path
) -> None:
    second = lent.new_login()
    lent.accept(second, lent.login)
    ask(lent, "CREATE TABLE t AS SELECT generate_series(1, 1000) n")
    lent.run(lent.driver.snapshot(lent.site, lent.process, second, folder))
    branch = another(lent, layout)
    branch.run(branch.driver.restore(branch.site, folder))
    branch.run(branch.driver.provision(branch.site, branch.spec))
    branch.start()
    try:
        assert not branch.works(second)
        assert not branch.works(lent.login)
        assert not branch.works(Login("app_2", branch.login.password))
        assert value(branch, "SELECT count(*) FROM t") == 1000
        # Each its own from now on, whose driver can do its work.
        ask(branch, "DROP TABLE t")
        branch.accept(new := branch.new_login())
        assert branch.works(new)
        assert value(lent, "SELECT count(*) FROM t") == 1000
    finally:
        branch.stop()


@pytest.mark.nightly
@every_version_lent
def test_a_snapshot_holds_what_was_committed_while_it_was_taken(
    lent: Subject, folder: Path
) -> None:
    ask(lent, "CREATE TABLE numbers (n int PRIMARY KEY, filling text)")
    stop = threading.Event()
    committed: list[int] = []

    def write() -> None:
        with session(lent) as connection:
            while not stop.is_set():
                number = len(committed)
                connection.execute(
                    "INSERT INTO numbers VALUES (%s, %s)", [number, secrets.token_hex(2000)]
                )
                committed.append(number)

    writer = threading.Thread(target=write)
    writer.start()
    try:
        while len(committed) < 20:
            time.sleep(0.01)
        before = len(committed)
        lent.run(lent.driver.snapshot(lent.site, lent.process, lent.login, folder))
        after = len(committed)
    finally:
        stop.set()
        writer.join()
    lent.stop()
    lent.run(lent.driver.restore(lent.site, folder))
    lent.start()
    found = [n for (n,) in ask(lent, "SELECT n FROM numbers ORDER BY n")]
    assert found == list(range(len(found)))
    assert before <= len(found) <= after + 1


# Slow for what it adds by day.
@pytest.mark.nightly
@newest_lent
def test_a_broken_snapshot_leaves_the_data_as_it_is(lent: Subject, folder: Path) -> None:
    ask(lent, "CREATE TABLE t (n int)")
    lent.run(lent.driver.snapshot(lent.site, lent.process, lent.login, folder))
    lent.stop()
    archive = folder / "cluster.tar"
    os.truncate(archive, archive.stat().st_size // 2)
    with pytest.raises(EngineError):
        lent.run(lent.driver.restore(lent.site, folder))
    lent.start()
    assert value(lent, "SELECT count(*) FROM t") == 0


@pytest.mark.nightly
@newest_lent
def test_links_in_the_data_are_not_followed(lent: Subject, folder: Path) -> None:
    lent.stop()
    (lent.site.data.outside / "link").symlink_to("/etc/hostname")
    (lent.site.data.outside / "linked").symlink_to("/etc")
    os.mkfifo(lent.site.data.outside / "pipe")
    lent.run(lent.driver.snapshot(lent.site, None, lent.login, folder))
    lent.run(lent.driver.restore(lent.site, folder))
    assert not {"link", "linked", "pipe"} & {path.name for path in lent.site.data.outside.iterdir()}
    lent.start()


@pytest.mark.nightly
@newest_lent
def test_why_data_cannot_be_opened_is_in_the_log_alone(lent: Subject, folder: Path) -> None:
    """Who may see an instance's status may not yet read its log."""
    lent.stop()
    (lent.site.data.outside / "global" / "pg_control").write_bytes(b"damaged")
    lent.run(lent.driver.snapshot(lent.site, None, lent.login, folder))
    with pytest.raises(EngineError) as refused:
        lent.run(lent.driver.restore(lent.site, folder))
    told = "the data cannot be opened; the instance's log has the details"
    assert str(refused.value) == told
    assert "data not opened: " in lent.site.log.read_text()


@pytest.mark.nightly
@newest_lent
def test_data_that_is_damaged_is_not_taken_for_none(lent: Subject) -> None:
    ask(lent, "CREATE TABLE t AS SELECT 1 n")
    lent.stop()
    version = lent.site.data.outside / "PG_VERSION"
    version.rename(lent.site.data.outside / "elsewhere")
    with pytest.raises(EngineError):
        lent.run(lent.driver.provision(lent.site, lent.spec))
    (lent.site.data.outside / "elsewhere").rename(version)
    lent.run(lent.driver.provision(lent.site, lent.spec))
    lent.start()
    assert value(lent, "SELECT n FROM t") == 1


@pytest.mark.nightly
@newest_lent
def test_a_neighbours_log_is_not_copied_through_a_link(
    lent: Subject, folder: Path, tmp_path: Path
) -> None:
    log, neighbours = lent.site.data.outside / "pg_wal", tmp_path / "neighbour"
    shutil.copytree(log, neighbours)
    log.rename(lent.site.data.outside / "moved")
    log.symlink_to(neighbours)
    with pytest.raises((EngineError, OSError)):
        lent.run(lent.driver.snapshot(lent.site, lent.process, lent.login, folder))
    log.unlink()
    (lent.site.data.outside / "moved").rename(log)


# Code of an index runs where its table is analysed, and errors of any length are the tenant's.
FAILS_FOR_US = (
    """CREATE FUNCTION public.f(n int) RETURNS int IMMUTABLE LANGUAGE plpgsql AS $$ BEGIN
    IF current_setting('application_name') = 'menagerie' THEN
        RAISE EXCEPTION '%', repeat('x', 1000000);
    END IF;
    RETURN n; END $$""",
    "CREATE TABLE t AS SELECT n FROM generate_series(1, 10) n",
    "CREATE INDEX ON t (public.f(n))",
)


def fill(running: Subject) -> None:
    with session(running) as connection:
        connection.execute("CREATE TABLE filled (n int PRIMARY KEY, body text)")
        connection.execute("INSERT INTO filled SELECT n, n::text FROM generate_series(1, 1000) n")
        connection.execute("CREATE DATABASE more")
        connection.execute("ALTER TABLE filled ALTER n SET (n_distinct = -1)")
        if running.spec.engine_version != "15":
            connection.execute("CREATE ROLE reporting LOGIN")
    with session(running, database="more") as connection:
        if running.spec.engine_version != "15":
            connection.execute("CREATE EXTENSION vector")
        for statement in FAILS_FOR_US:
            connection.execute(statement.encode())


def upgrade_after_a_kill(running: Subject) -> None:
    """Not stopped in order, which the tool itself would not take."""
    running.kill()
    wanted = replace(running.spec, engine_version=running.driver.versions()[0])
    former, running.spec = running.spec, wanted
    running.run(running.driver.upgrade(running.site, former, wanted))
    running.run(running.driver.upgrade(running.site, former, wanted))
    running.start()


def check_filled(running: Subject, former_version: str) -> None:
    assert value(running, "SHOW server_version_num").startswith(running.spec.engine_version)
    assert value(running, "SELECT count(*) FROM filled") == 1000
    assert value(running, OPTIONS) == ["n_distinct=-1"]
    # Not before it runs under the limits of its size.
    assert isinstance(running.driver, PostgreSQL)
    running.driver.counts.begins_after_s = 0.0
    running.run(running.driver.finish(running.site))
    assert value(running, "SELECT reltuples FROM pg_class WHERE relname = 'filled'") == 1000
    assert value(running, "SELECT tableowner FROM pg_tables WHERE tablename = 'filled'") == "app"
    new = running.new_login()
    running.accept(new)
    assert running.works(new)
    running.stop()
    former = replace(running.spec, engine_version=former_version)
    with pytest.raises(EngineError, match="cannot be downgraded"):
        running.run(running.driver.upgrade(running.site, running.spec, former))


@upgraded
@pytest.mark.nightly  # by day in test_postgres_upgrade_intruders.py
def test_an_upgrade_keeps_data_rights_and_extensions(running: Subject) -> None:
    former = running.spec.engine_version
    if running.driver.versions()[0] == former:
        pytest.skip("there is no newer version on this machine")
    fill(running)
    upgrade_after_a_kill(running)
    check_filled(running, former)


# By day one is refused, and runs on, in test_postgres_upgrade_intruders.py.
@pytest.mark.nightly
@pytest.mark.parametrize("subject", [("postgres", "16")], indirect=True)
def test_an_upgrade_that_cannot_be_leaves_the_data_as_it_is(running: Subject) -> None:
    newest_version = running.driver.versions()[0]
    if newest_version == running.spec.engine_version:
        pytest.skip("there is no newer version on this machine")
    # A database the tool cannot look into.
    ask(running, "CREATE TABLE t AS SELECT 1 n")
    ask(running, "CREATE DATABASE closed")
    ask(running, "ALTER DATABASE closed ALLOW_CONNECTIONS false")
    running.stop()
    wanted = replace(running.spec, engine_version=newest_version)
    with pytest.raises(EngineError, match="could not be upgraded"):
        running.run(running.driver.upgrade(running.site, running.spec, wanted))
    running.start()
    assert value(running, "SELECT n FROM t") == 1
    assert value(running, "SHOW server_version_num").startswith("16")


@pytest.mark.nightly
@pytest.mark.parametrize("subject", [("postgres", "16")], indirect=True)
def test_a_failed_upgrade_leaves_its_reason_in_the_log(running: Subject) -> None:
    """The owner's function finds nothing meanwhile, which the domain's check does not take."""
    newest_version = running.driver.versions()[0]
    if newest_version == running.spec.engine_version:
        pytest.skip("there is no newer version on this machine")
    body = "LANGUAGE plpgsql IMMUTABLE AS 'BEGIN RETURN 1; END'"
    ask(running, f"CREATE FUNCTION f(int) RETURNS int {body}")
    ask(running, "CREATE DOMAIN strict AS int CHECK (f(value) IS NOT NULL)")
    ask(running, f"CREATE VIEW v AS SELECT '{{5}}'::strict[] AS n, '{'long' * 500}' AS text")
    running.stop()
    wanted = replace(running.spec, engine_version=newest_version)
    with pytest.raises(EngineError, match="log has the details"):
        running.run(running.driver.upgrade(running.site, running.spec, wanted))
    told = running.site.log.read_text()
    assert "value for domain public.strict violates check constraint" in told
    assert "longlong" not in told


@pytest.mark.nightly
@newest_lent
def test_no_committed_row_is_lost_to_a_kill(lent: Subject) -> None:
    ask(lent, "CREATE TABLE numbers (n int PRIMARY KEY)")
    committed = 0
    for _ in range(3):
        enough = committed + 50
        # From a thread, so that the writing goes on until it is cut off.
        killer = threading.Thread(target=lent.kill)
        with session(lent) as connection:
            try:
                while True:
                    connection.execute("INSERT INTO numbers VALUES (%s)", [committed])
                    committed += 1
                    if committed == enough:
                        killer.start()
            except psycopg.OperationalError:
                killer.join()
        lent.start()
        found = value(lent, "SELECT count(*) FROM numbers")
        # One more where the answer was lost and not the row.
        assert committed <= found <= committed + 1
        committed = found
    assert committed >= 150
    assert value(lent, "SHOW data_checksums") == "on"
    assert value(lent, "SHOW fsync") == "on"


@pytest.mark.nightly
@newest
def test_settings_follow_the_size(running: Subject) -> None:
    assert value(running, SETTING.format("max_connections")) == "97"
    assert value(running, "SHOW shared_buffers") == "256MB"
    assert running.process is not None
    # Room on the disk can be had while it runs; memory and connections cannot.
    size = running.spec.size
    wider = Size(size.name, size.vcpu, size.memory_bytes, 3 * 10**9, size.connections_max)
    assert running.run(running.driver.resize(running.site, running.process, wider))
    deadline = time.monotonic() + 30
    while value(running, "SHOW max_wal_size") != "286MB":
        assert time.monotonic() < deadline
    larger = Size("s2", 2.0, 4 * 2**30, 20 * 10**9, 200)
    assert not running.run(running.driver.resize(running.site, running.process, larger))
    running.stop()
    running.spec = running.spec.resized(larger)
    running.start()
    assert value(running, SETTING.format("max_connections")) == "237"
    assert value(running, "SHOW shared_buffers") == "1GB"
    assert value(running, "SHOW listen_addresses") == ""


@newest
@pytest.mark.nightly
def test_at_the_storage_limit_nothing_grows_and_room_can_be_made(running: Subject) -> None:
    assert running.process is not None
    process, size = running.process, running.spec.size

    def measured(*, writable: bool) -> None:
        # As the cell does now and then.
        deadline = time.monotonic() + 30
        while value(running, "SHOW default_transaction_read_only") != ("off" if writable else "on"):
            assert time.monotonic() < deadline
            # What was measured last is forgotten with an instance.
            running.run(running.driver.erase(running.site))
            running.driver.metrics(running.site, process)

    ask(running, "CREATE TABLE t AS SELECT repeat(md5(n::text), 200) FROM generate_series(1, 9) n")
    used = running.driver.metrics(running.site, process).storage_bytes
    small = Size(size.name, size.vcpu, size.memory_bytes, used + 2 * 10**7, size.connections_max)
    assert running.run(running.driver.resize(running.site, process, small))
    measured(writable=True)
    ask(running, "CREATE TABLE large AS SELECT n, md5(n::text) FROM generate_series(1, 600000) n")
    measured(writable=False)
    with pytest.raises(psycopg.errors.ReadOnlySqlTransaction):
        ask(running, "INSERT INTO large VALUES (0, '')")
    assert running.works(running.login)
    running.accept(running.login, running.new_login())
    with session(running) as connection:
        connection.execute("SET default_transaction_read_only = off")
        connection.execute("DROP TABLE large")
    larger = replace(small, storage_bytes=20 * 10**9)
    assert running.run(running.driver.resize(running.site, process, larger))
    measured(writable=True)
    ask(running, "INSERT INTO t VALUES ('again')")


@pytest.mark.nightly
@newest_lent
def test_a_full_server_counts_as_one_that_runs(lent: Subject) -> None:
    assert lent.process is not None
    taken = [session(lent) for _ in range(lent.spec.size.connections_max)]
    try:
        assert lent.works(lent.login)
        lent.accept(lent.login, new := lent.new_login())
        assert lent.works(new)
    finally:
        for connection in taken:
            connection.close()
