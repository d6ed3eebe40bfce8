"""A running MariaDB is followed until the cutover: nothing is lost, nothing comes twice."""

import contextlib
import threading
import time
from collections.abc import Iterator
from typing import Any

import pymysql
import pytest

from contract_tests.cell.migrations.mariadb_server import PASSWORD, READER, MariaDBDatabase
from contract_tests.cell.migrations.migration_calls import (
    CONNECTION,
    begun,
    connect,
    observed,
    status_is,
)
from contract_tests.cell.migrations.sync_calls import completed, cut_over, level
from contract_tests.cell.migrations.test_mariadb_sources import EVERYTHING
from contract_tests.cell.migrations.test_mysql_dumps import rows
from contract_tests.cell.rig import Rig, until

TABLES = (
    """CREATE TABLE counted (n INT PRIMARY KEY AUTO_INCREMENT, t VARCHAR(40), at TIMESTAMP(3)
        DEFAULT CURRENT_TIMESTAMP(3) ON UPDATE CURRENT_TIMESTAMP(3))""",
    "CREATE TABLE parents (n INT PRIMARY KEY, t TEXT)",
    """CREATE TABLE children (n INT PRIMARY KEY, parent INT,
        FOREIGN KEY (parent) REFERENCES parents (n) ON DELETE CASCADE)""",
    "CREATE TABLE heard (n INT PRIMARY KEY AUTO_INCREMENT, t TEXT)",
    """CREATE TRIGGER hears AFTER INSERT ON counted FOR EACH ROW
        INSERT INTO heard (t) VALUES (CONCAT('ü', NEW.n))""",
    "CREATE EVENT goes_on ON SCHEDULE EVERY 1 YEAR DO SELECT 1",
    "INSERT INTO counted (t) SELECT seq FROM seq_1_to_500",
)
NAMES = ("counted", "parents", "children", "heard")


@contextlib.contextmanager
def writing(shop: MariaDBDatabase, pause_s: float = 0.002) -> Iterator[threading.Event]:
    """Until it is told to end; a source that is away is waited for."""
    ended = threading.Event()

    def write() -> None:
        number = 0
        while not ended.is_set():
            try:
                with shop.server.connect(shop.name) as connection, connection.cursor() as cursor:
                    while not ended.is_set():
                        number += 1
                        _write(connection, cursor, number)
                        time.sleep(pause_s)
            except pymysql.err.MySQLError:
                time.sleep(0.1)

    thread = threading.Thread(target=write)
    thread.start()
    try:
        yield ended
    finally:
        ended.set()
        thread.join()


def _write(connection: Any, cursor: Any, number: int) -> None:
    connection.begin()
    cursor.execute("INSERT INTO counted (t) VALUES (%s)", [f"row {number}"])
    cursor.execute("UPDATE counted SET t = CONCAT(t, '+') WHERE n = %s", [number % 400])
    cursor.execute("DELETE FROM counted WHERE n = %s", [number * 7 % 900])
    cursor.execute("REPLACE INTO parents VALUES (%s, REPEAT('x', %s))", [number % 50, number % 90])
    cursor.execute("REPLACE INTO children VALUES (%s, %s)", [number % 70, number % 50])
    cursor.execute("SAVEPOINT here")
    cursor.execute("DELETE FROM heard LIMIT 1")
    if number % 5 == 0:
        cursor.execute("ROLLBACK TO here")
    if number % 9:
        connection.commit()
    else:
        connection.rollback()


def synced(rig: Rig, instance_id: str, shop: MariaDBDatabase, **more: Any) -> str:
    migration_id = begun(rig, instance_id, CONNECTION, "copy_and_sync")
    connect(rig, instance_id, migration_id, shop, **more)
    status_is(rig, instance_id, migration_id, "syncing")
    return migration_id


def assert_equal(
    rig: Rig, instance_id: str, shop: MariaDBDatabase, names: tuple[str, ...] = NAMES
) -> None:
    for name in names:
        asked = f"SELECT * FROM {name} ORDER BY 1"
        assert rows(rig, instance_id, asked) == shop.ask(asked), name
    assert databases(rig, instance_id) == {"app"}
    until(lambda: shop.sessions() == 0, "nothing is left at the source")
    assert not (rig.home / "instances" / instance_id / "migration").exists()


def databases(rig: Rig, instance_id: str) -> set[str]:
    found = {name for (name,) in rows(rig, instance_id, "SHOW DATABASES")}
    return found - {"information_schema", "mysql", "performance_schema", "sys"}


@pytest.mark.timeout(300)
def test_a_source_is_followed(
    migrating: Rig, mariadb_id: str, mariadb_shop: MariaDBDatabase
) -> None:
    mariadb_shop.ask(*TABLES)
    with writing(mariadb_shop, pause_s=0.02) as ended:
        migration_id = synced(migrating, mariadb_id, mariadb_shop)
        newest = "SELECT MAX(n) FROM counted"
        ((before,),) = mariadb_shop.ask(newest)
        until(lambda: rows(migrating, mariadb_id, newest)[0][0] > before + 20, "changes follow")
        ended.set()
    level(migrating, mariadb_id, migration_id)
    seen = completed(migrating, mariadb_id, migration_id)
    assert seen["verification"]["tables_compared"] == len(NAMES)
    assert PASSWORD not in str(seen)
    assert_equal(migrating, mariadb_id, mariadb_shop)
    # What rested is awake.
    rows(migrating, mariadb_id, "INSERT INTO counted (n, t) VALUES (100000, 'a')")
    asked = "SELECT COUNT(*) FROM heard WHERE t = 'ü100000'"
    assert rows(migrating, mariadb_id, asked) == [(1,)]
    events = "SELECT EVENT_NAME, STATUS FROM information_schema.EVENTS"
    assert rows(migrating, mariadb_id, events) == [("goes_on", "ENABLED")]


@pytest.mark.nightly
@pytest.mark.timeout(300)
def test_values_of_all_types_follow(
    migrating: Rig, mariadb_id: str, mariadb_shop: MariaDBDatabase
) -> None:
    empty = [each for each in EVERYTHING if not each.startswith("INSERT") and "twins" not in each]
    mariadb_shop.ask(*empty)
    mariadb_shop.ask(
        """CREATE TABLE odd (b BINARY(4), u UUID, i INET4, e ENUM('x', 'y'), d DATETIME(1), c
            CHAR(3) CHARACTER SET utf16, k BIT(64), f FLOAT, m DECIMAL(65, 30), z TIME(6),
            l VARCHAR(300) CHARACTER SET latin1, h BLOB UNIQUE, g GEOMETRY,
            PRIMARY KEY (b, u, i, e, d, c, k, f))""",
        """CREATE EVENT passes ON SCHEDULE AT CURRENT_TIMESTAMP + INTERVAL 15 SECOND
            ON COMPLETION PRESERVE DO SELECT 1""",
    )
    migration_id = synced(migrating, mariadb_id, mariadb_shop)
    odd = "INSERT INTO odd VALUES ({})"
    values = (
        """x'61000000', '00112233-4455-1677-8899-aabbccddeeff', '1.2.3.0', 'y',
            '2026-01-02 03:04:05.6', 'aü', 18446744073709551615, 0.1, -1234567890.000000001,
            '-00:00:00.000001', REPEAT('ä', 299), 'one', POINT(1, 2)""",
        """x'00000000', '00112233-4455-7677-8899-aabbccdd0000', '0.0.0.0', 1, '0000-00-00', '',
            0, -3e38, 99999999999999999999999999999999999.999999999999999999999999999999,
            '838:59:59.999999', '', NULL, NULL""",
        """x'ffffffff', '00000000-0000-0000-0000-000000000000', '9.9.9.9', 1, '2024-02-31', 'b',
            1, 0, -0.5, '-838:59:59', 'x', '', NULL""",
    )
    mariadb_shop.ask(
        *(each for each in EVERYTHING if each.startswith("INSERT") and "twins" not in each),
        "UPDATE every SET f = f + 0.1, d = -d, k = '-00:00:01.5', b = x'00' WHERE n % 2",
        "DELETE FROM every WHERE n % 5 = 0 ORDER BY n LIMIT 300",
        "SET sql_mode = 'ALLOW_INVALID_DATES'",
        *(odd.format(each) for each in values),
        "UPDATE odd SET l = CONCAT(l, 'ö'), z = -z",
        "DELETE FROM odd WHERE i = '9.9.9.9'",
        "INSERT INTO none VALUES (5), (7)",
        "TRUNCATE TABLE none",
        "INSERT INTO none VALUES (10)",
        "DO NEXT VALUE FOR counted",
        "DO SETVAL(counted, 77)",
    )
    level(migrating, mariadb_id, migration_id)
    passed = "SELECT NOW() > EXECUTE_AT FROM information_schema.EVENTS WHERE EVENT_NAME = 'passes'"
    until(lambda: mariadb_shop.ask(passed) == [(1,)], "its moment has passed")
    completed(migrating, mariadb_id, migration_id)
    assert_equal(migrating, mariadb_id, mariadb_shop, ("every", "odd", "none"))
    assert rows(migrating, mariadb_id, "SELECT NEXT VALUE FOR counted") == [(1005,)], (
        "what was cached is gone"
    )


@pytest.mark.nightly
@pytest.mark.timeout(300)
def test_what_keeps_it_from_being_followed_is_found_before(
    migrating: Rig, mariadb_id: str, mariadb_shop: MariaDBDatabase
) -> None:
    name = mariadb_shop.name
    mariadb_shop.ask(
        "CREATE TABLE a (n INT)",
        "CREATE TABLE b (n INT PRIMARY KEY) ENGINE=Aria",
        "CREATE TABLE c (n INT PRIMARY KEY, t TEXT COMPRESSED)",
        "CREATE TABLE d (n INT PRIMARY KEY) WITH SYSTEM VERSIONING",
        f"GRANT ALL PRIVILEGES ON {name}.* TO {READER}@'%'",
        "SET GLOBAL binlog_row_image = NOBLOB",
        "SET GLOBAL binlog_format = MIXED",
    )
    migration_id = begun(migrating, mariadb_id, CONNECTION, "copy_and_sync")
    try:
        connect(migrating, mariadb_id, migration_id, mariadb_shop, uri=mariadb_shop.as_user(READER))
        seen = status_is(migrating, mariadb_id, migration_id, "failed")
    finally:
        mariadb_shop.ask(
            "SET GLOBAL binlog_row_image = FULL",
            "SET GLOBAL binlog_format = ROW",
            f"REVOKE ALL PRIVILEGES ON {name}.* FROM {READER}@'%'",
        )
    blocking = [each for each in seen["preflight"]["findings"] if each["severity"] == "blocking"]
    assert sorted(each["code"] for each in blocking) == [
        *("binlog_format", "binlog_row_image", "missing_right"),
        *("not_followed", "not_followed", "not_followed", "not_followed"),
    ]
    assert all(each["remedy"] for each in blocking)
    assert databases(migrating, mariadb_id) == {"app"}


@pytest.mark.nightly
@pytest.mark.timeout(300)
def test_who_writes_on_is_told(
    migrating: Rig, mariadb_id: str, mariadb_shop: MariaDBDatabase
) -> None:
    mariadb_shop.ask(*TABLES)
    with writing(mariadb_shop):
        migration_id = synced(migrating, mariadb_id, mariadb_shop)
        cut_over(migrating, mariadb_id, migration_id)

        def is_told() -> bool:
            seen = observed(migrating, mariadb_id, migration_id)
            assert seen["status"] in {"syncing", "cutting_over", "verifying"}, seen
            return "was written to during the cutover" in (seen["reason"] or "")

        until(is_told, "it is syncing again")
    completed(migrating, mariadb_id, migration_id)
    assert_equal(migrating, mariadb_id, mariadb_shop)


@pytest.mark.nightly
@pytest.mark.timeout(300)
def test_a_binary_log_that_is_gone_ends_the_sync(
    migrating: Rig, mariadb_id: str, mariadb_shop: MariaDBDatabase
) -> None:
    mariadb_shop.ask(*TABLES)
    migration_id = synced(migrating, mariadb_id, mariadb_shop)
    level(migrating, mariadb_id, migration_id)
    migrating.kill()
    mariadb_shop.ask(
        "INSERT INTO counted (t) VALUES ('lost')", "FLUSH BINARY LOGS", "FLUSH BINARY LOGS"
    )
    ((last, *_),) = mariadb_shop.ask("SHOW MASTER STATUS")
    time.sleep(1)
    mariadb_shop.ask(f"PURGE BINARY LOGS TO '{last}'")
    migrating.start()
    seen = status_is(migrating, mariadb_id, migration_id, "failed")
    assert "does not have its binary log" in seen["reason"]
    assert rows(migrating, mariadb_id, "SHOW TABLES") == []
    assert databases(migrating, mariadb_id) == {"app"}
