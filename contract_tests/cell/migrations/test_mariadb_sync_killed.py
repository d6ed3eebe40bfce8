"""A sync of a MariaDB goes on whatever is killed, or nothing of it is left."""

import time
from contextlib import suppress

import pymysql
import pytest

from contract_tests.cell.migrations import mariadb_server, sync_calls
from contract_tests.cell.migrations.mariadb_server import MariaDBDatabase
from contract_tests.cell.migrations.migration_calls import (
    CONNECTION,
    ENDED,
    begun,
    connect,
    observed,
    status_is,
)
from contract_tests.cell.migrations.sync_calls import (
    cancelled,
    come_to,
    completed,
    cut_over,
    level,
)
from contract_tests.cell.migrations.test_mariadb_sources import unchanged
from contract_tests.cell.migrations.test_mariadb_sync import (
    TABLES,
    assert_equal,
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
def shop(mariadb_shop: MariaDBDatabase) -> MariaDBDatabase:
    mariadb_shop.ask(*TABLES)
    return mariadb_shop


def kill(rig: Rig, instance_id: str, shop: MariaDBDatabase, victim: str) -> None:
    if victim == "connection":
        for (number,) in shop.ask(DUMPS):
            shop.ask(f"KILL {number}")
    else:
        sync_calls.kill(rig, instance_id, victim)


@pytest.mark.parametrize("victim", ["cell", "engine", "connection"])
def test_a_sync_goes_on(
    migrating: Rig, mariadb_id: str, shop: MariaDBDatabase, victim: str
) -> None:
    with writing(shop) as ended:
        migration_id = synced(migrating, mariadb_id, shop)
        for _ in range(3):
            follows(migrating, mariadb_id, shop)
            kill(migrating, mariadb_id, shop, victim)
            migrating.status_is(mariadb_id, "running")
        follows(migrating, mariadb_id, shop)
        ended.set()
    level(migrating, mariadb_id, migration_id)
    completed(migrating, mariadb_id, migration_id)
    assert_equal(migrating, mariadb_id, shop)


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
    migrating: Rig, mariadb_id: str, shop: MariaDBDatabase, victim: str, moment: int
) -> None:
    """At moments over all that it takes until changes follow."""
    with writing(shop, pause_s=0.02) as ended:
        migration_id = begun(migrating, mariadb_id, CONNECTION, "copy_and_sync")
        connect(migrating, mariadb_id, migration_id, shop)
        time.sleep(0.5 + 1.5 * moment)
        with suppress(OSError):
            kill(migrating, mariadb_id, shop, victim)
        seen = status_is(migrating, mariadb_id, migration_id, "syncing", "failed")
        migrating.status_is(mariadb_id, "running")
        if seen["status"] == "failed":
            assert victim == "engine", seen
            unchanged(migrating, mariadb_id)
            return
        ended.set()
    level(migrating, mariadb_id, migration_id)
    completed(migrating, mariadb_id, migration_id)
    assert_equal(migrating, mariadb_id, shop)


@pytest.mark.parametrize("victim", ["cell", "engine", "connection"])
@pytest.mark.parametrize("after_s", [0.0, 0.15, 0.4, 0.8])
def test_a_cutover_that_is_killed_is_made(
    migrating: Rig, mariadb_id: str, shop: MariaDBDatabase, victim: str, after_s: float
) -> None:
    with writing(shop) as ended:
        migration_id = synced(migrating, mariadb_id, shop)
        follows(migrating, mariadb_id, shop)
        ended.set()
    cut_over(migrating, mariadb_id, migration_id)
    time.sleep(after_s)
    kill(migrating, mariadb_id, shop, victim)

    def has_ended() -> bool:
        """One that was thrown back is asked for again."""
        seen = observed(migrating, mariadb_id, migration_id)
        if seen["status"] == "syncing":
            cut_over(migrating, mariadb_id, migration_id)
            time.sleep(1)
        return seen["status"] in ENDED

    until(has_ended, "it has ended", within_s=90)
    status_is(migrating, mariadb_id, migration_id, "completed")
    # It may have been killed after that.
    until(lambda: answers(migrating, mariadb_id), "the instance answers")
    assert_equal(migrating, mariadb_id, shop)
    rows(migrating, mariadb_id, "INSERT INTO counted (n, t) VALUES (100000, 'a')")
    asked = "SELECT COUNT(*) FROM heard WHERE t = 'ü100000'"
    assert rows(migrating, mariadb_id, asked) == [(1,)]


def test_a_source_that_is_killed_is_followed_on(migrating: Rig, mariadb_id: str) -> None:
    lasting = ("--innodb-flush-log-at-trx-commit=1", "--sync-binlog=1")
    with mariadb_server.running(*lasting) as server:
        shop = server.new_database()
        shop.ask(*TABLES)
        with writing(shop) as ended:
            migration_id = synced(migrating, mariadb_id, shop)
            for _ in range(2):
                follows(migrating, mariadb_id, shop)
                server.kill()
                until(lambda: observed(migrating, mariadb_id, migration_id)["reason"], "it is told")
                server.start()
            follows(migrating, mariadb_id, shop)
            ended.set()
        level(migrating, mariadb_id, migration_id)
        completed(migrating, mariadb_id, migration_id)
        assert_equal(migrating, mariadb_id, shop)


def test_a_cancel_leaves_nothing(migrating: Rig, mariadb_id: str, shop: MariaDBDatabase) -> None:
    """Whatever it is doing."""
    with writing(shop):
        for wanted in ("preflight", "copying", "syncing", "cutting_over", "verifying"):
            migration_id = begun(migrating, mariadb_id, CONNECTION, "copy_and_sync")
            connect(migrating, mariadb_id, migration_id, shop)
            if wanted == "copying":
                status_is(migrating, mariadb_id, migration_id, "copying")
                time.sleep(4)
            else:
                come_to(migrating, mariadb_id, migration_id, wanted)
            cancelled(migrating, mariadb_id, migration_id)
            migrating.status_is(mariadb_id, "running")
            unchanged(migrating, mariadb_id)
            until(lambda: shop.sessions() == 0, "nothing is left at the source")


def test_a_credential_is_rotated_meanwhile(
    migrating: Rig, mariadb_id: str, shop: MariaDBDatabase
) -> None:
    with writing(shop) as ended:
        migration_id = synced(migrating, mariadb_id, shop)
        for _ in range(2):
            follows(migrating, mariadb_id, shop)
            migrating.rotate(mariadb_id)
        follows(migrating, mariadb_id, shop)
        ended.set()
    level(migrating, mariadb_id, migration_id)
    completed(migrating, mariadb_id, migration_id)
    assert_equal(migrating, mariadb_id, shop)
