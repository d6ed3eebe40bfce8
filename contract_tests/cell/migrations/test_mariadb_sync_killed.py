"""A sync of a MariaDB goes on whatever is killed, or nothing of it is left."""

import os
import signal
import time
from collections.abc import Iterator
from contextlib import suppress

import pymysql
import pytest

from contract_tests.cell.migrations import mariadb_server
from contract_tests.cell.migrations.mariadb_server import MariaDBDatabase
from contract_tests.cell.migrations.migration_calls import (
    CONNECTION,
    ENDED,
    begun,
    connect,
    observed,
    path_of,
    status_is,
)
from contract_tests.cell.migrations.test_files import made
from contract_tests.cell.migrations.test_mariadb_sources import unchanged
from contract_tests.cell.migrations.test_mariadb_sync import (
    TABLES,
    assert_equal,
    completed,
    cut_over,
    level,
    synced,
    writing,
)
from contract_tests.cell.migrations.test_mysql_dumps import rows
from contract_tests.cell.rig import Rig, until

pytestmark = [pytest.mark.nightly, pytest.mark.timeout(400)]
NEWEST = "SELECT MAX(n) FROM counted"
DUMPS = "SELECT ID FROM information_schema.PROCESSLIST WHERE COMMAND = 'Binlog Dump'"
TRIES = 6


@pytest.fixture
def target_id(migrating: Rig) -> Iterator[str]:
    found = made(migrating, "mariadb")
    yield found
    migrating.action(found, "erase")


@pytest.fixture
def shop(mariadb_shop: MariaDBDatabase) -> MariaDBDatabase:
    mariadb_shop.ask(*TABLES)
    return mariadb_shop


def kill(rig: Rig, instance_id: str, shop: MariaDBDatabase, victim: str) -> None:
    if victim == "cell":
        rig.kill()
        rig.start()
    elif victim == "engine":
        os.kill(rig.engine_pid(instance_id), signal.SIGKILL)
    else:
        for (number,) in shop.ask(DUMPS):
            shop.ask(f"KILL {number}")


@pytest.mark.parametrize("victim", ["cell", "engine", "connection"])
def test_a_sync_goes_on(migrating: Rig, target_id: str, shop: MariaDBDatabase, victim: str) -> None:
    with writing(shop) as ended:
        migration_id = synced(migrating, target_id, shop)
        for _ in range(3):
            follows(migrating, target_id, shop)
            kill(migrating, target_id, shop, victim)
            migrating.status_is(target_id, "running")
        follows(migrating, target_id, shop)
        ended.set()
    level(migrating, target_id, migration_id)
    completed(migrating, target_id, migration_id)
    assert_equal(migrating, target_id, shop)


def answers(rig: Rig, instance_id: str) -> bool:
    with suppress(pymysql.err.MySQLError):
        return rows(rig, instance_id, "SELECT 1") == [(1,)]
    return False


def follows(rig: Rig, instance_id: str, shop: MariaDBDatabase) -> None:
    ((before,),) = shop.ask(NEWEST)

    def is_there() -> bool:
        # Its engine may be starting.
        if not answers(rig, instance_id):
            return False
        return bool(rows(rig, instance_id, NEWEST)[0][0] > before + 10)

    until(is_there, "changes follow", within_s=60)


@pytest.mark.parametrize("victim", ["cell", "engine"])
@pytest.mark.parametrize("moment", range(TRIES))
def test_a_copy_that_is_killed_becomes_whole_or_nothing(
    migrating: Rig, target_id: str, shop: MariaDBDatabase, victim: str, moment: int
) -> None:
    """At moments over all that it takes until changes follow."""
    with writing(shop, pause_s=0.02) as ended:
        migration_id = begun(migrating, target_id, CONNECTION, "copy_and_sync")
        connect(migrating, target_id, migration_id, shop)
        time.sleep(0.5 + 1.5 * moment)
        with suppress(OSError):
            kill(migrating, target_id, shop, victim)
        seen = status_is(migrating, target_id, migration_id, "syncing", "failed")
        migrating.status_is(target_id, "running")
        if seen["status"] == "failed":
            assert victim == "engine", seen
            unchanged(migrating, target_id)
            return
        ended.set()
    level(migrating, target_id, migration_id)
    completed(migrating, target_id, migration_id)
    assert_equal(migrating, target_id, shop)


@pytest.mark.parametrize("victim", ["cell", "engine", "connection"])
@pytest.mark.parametrize("after_s", [0.0, 0.15, 0.4, 0.8])
def test_a_cutover_that_is_killed_is_made(
    migrating: Rig, target_id: str, shop: MariaDBDatabase, victim: str, after_s: float
) -> None:
    with writing(shop) as ended:
        migration_id = synced(migrating, target_id, shop)
        follows(migrating, target_id, shop)
        ended.set()
    cut_over(migrating, target_id, migration_id)
    time.sleep(after_s)
    kill(migrating, target_id, shop, victim)

    def has_ended() -> bool:
        """One that was thrown back is asked for again."""
        seen = observed(migrating, target_id, migration_id)
        if seen["status"] == "syncing":
            cut_over(migrating, target_id, migration_id)
            time.sleep(1)
        return seen["status"] in ENDED

    until(has_ended, "it has ended", within_s=90)
    status_is(migrating, target_id, migration_id, "completed")
    # It may have been killed after that.
    until(lambda: answers(migrating, target_id), "the instance answers")
    assert_equal(migrating, target_id, shop)
    rows(migrating, target_id, "INSERT INTO counted (n, t) VALUES (100000, 'a')")
    asked = "SELECT COUNT(*) FROM heard WHERE t = 'ü100000'"
    assert rows(migrating, target_id, asked) == [(1,)]


def test_a_source_that_is_killed_is_followed_on(migrating: Rig, target_id: str) -> None:
    lasting = ("--innodb-flush-log-at-trx-commit=1", "--sync-binlog=1")
    with mariadb_server.running(*lasting) as server:
        shop = server.new_database()
        shop.ask(*TABLES)
        with writing(shop) as ended:
            migration_id = synced(migrating, target_id, shop)
            for _ in range(2):
                follows(migrating, target_id, shop)
                server.kill()
                until(lambda: observed(migrating, target_id, migration_id)["reason"], "it is told")
                server.start()
            follows(migrating, target_id, shop)
            ended.set()
        level(migrating, target_id, migration_id)
        completed(migrating, target_id, migration_id)
        assert_equal(migrating, target_id, shop)


def test_a_cancel_leaves_nothing(migrating: Rig, target_id: str, shop: MariaDBDatabase) -> None:
    """Whatever it is doing."""
    with writing(shop):
        for wanted in ("preflight", "copying", "syncing", "cutting_over", "verifying"):
            migration_id = begun(migrating, target_id, CONNECTION, "copy_and_sync")
            connect(migrating, target_id, migration_id, shop)
            if wanted == "copying":
                status_is(migrating, target_id, migration_id, "copying")
                time.sleep(4)
            if wanted in {"syncing", "cutting_over", "verifying"}:
                status_is(migrating, target_id, migration_id, "syncing")
            if wanted in {"cutting_over", "verifying"}:
                cut_over(migrating, target_id, migration_id)
                with suppress(AssertionError):
                    until(
                        lambda: observed(migrating, target_id, migration_id)["status"] == wanted,  # noqa: B023
                        "it is there",
                        within_s=1,
                    )
            answer = migrating.act("DELETE", path_of(target_id, migration_id))
            assert answer.status_code == 200, answer.text
            status_is(migrating, target_id, migration_id, "cancelled")
            migrating.status_is(target_id, "running")
            unchanged(migrating, target_id)
            until(lambda: shop.sessions() == 0, "nothing is left at the source")


def test_a_credential_is_rotated_meanwhile(
    migrating: Rig, target_id: str, shop: MariaDBDatabase
) -> None:
    with writing(shop) as ended:
        migration_id = synced(migrating, target_id, shop)
        for _ in range(2):
            follows(migrating, target_id, shop)
            migrating.rotate(target_id)
        follows(migrating, target_id, shop)
        ended.set()
    level(migrating, target_id, migration_id)
    completed(migrating, target_id, migration_id)
    assert_equal(migrating, target_id, shop)
