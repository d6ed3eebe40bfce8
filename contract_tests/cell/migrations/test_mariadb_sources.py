"""A running MariaDB becomes the data of an instance, or the reason is told and nothing changes."""

import contextlib
import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest

from cell.migrations.mysql.facts import SYSTEMS
from contract_tests.cell.migrations import mariadb_server
from contract_tests.cell.migrations.mariadb_server import PASSWORD, MariaDBDatabase
from contract_tests.cell.migrations.migration_calls import (
    CONNECTION,
    begun,
    connect,
    path_of,
    send,
    status_is,
    token,
)
from contract_tests.cell.migrations.test_files import made
from contract_tests.cell.migrations.test_mysql_dumps import rows, scratches
from contract_tests.cell.rig import Rig, until

EVERYTHING = (
    """CREATE TABLE every (n BIGINT UNSIGNED PRIMARY KEY AUTO_INCREMENT, t VARCHAR(99) CHARACTER SET
        latin1, u TEXT, b LONGBLOB, c CHAR(5), d DECIMAL(30, 10), f FLOAT, g DOUBLE, h DATE,
        i DATETIME(6), j TIMESTAMP(3) NULL, k TIME(2), y YEAR, z BIT(12), e ENUM('a', 'ü,'),
        s SET('x', 'y'), o JSON, p POINT, q INET6, r UUID, v INT AS (y + 1) VIRTUAL,
        w INT AS (y + 2) STORED, x INT INVISIBLE DEFAULT 5, `odd``, 'name'` INT ZEROFILL)""",
    r"""INSERT INTO every (n, t, u, b, c, d, f, g, h, i, j, k, y, z, e, s, o, p, q, r,
        `odd``, 'name'`) VALUES (9223372036854775807, 'ä', '💾\n\\''"', x'00ff0a5c27', 'a ', -1.5,
        1e-20, 1.1e300, '0001-01-01', '2026-03-29 02:30:00.123456', '2026-03-29 02:30:00.123',
        '-838:59:59', 1901,
        b'101', 'ü,', 'x,y', '{"a": 1.0}', POINT(1, 2), '::1', UUID(), 7)""",
    "INSERT INTO every (u, f, g) SELECT REPEAT(seq, 20), seq / 7, seq / 7 FROM seq_1_to_2000",
    "CREATE TABLE none (n INT PRIMARY KEY)",
    "CREATE TABLE twins (n INT, t TEXT) ENGINE=Aria",
    "INSERT INTO twins VALUES (1, 'a'), (1, 'a'), (NULL, NULL), (NULL, '')",
    "CREATE VIEW seen AS SELECT n FROM none",
    "CREATE TRIGGER one_more BEFORE INSERT ON none FOR EACH ROW SET NEW.n = NEW.n + 1",
    "CREATE PROCEDURE many() SELECT COUNT(*) FROM every",
    "CREATE EVENT daily ON SCHEDULE EVERY 1 DAY DISABLE DO SELECT 1",
    "CREATE SEQUENCE counted START 5",
)


# What is written while it is copied: each row of one table has one of the other.
WRITES = ("INSERT INTO items (n) SELECT MAX(n) + 1 FROM orders", "INSERT INTO orders VALUES (NULL)")


@pytest.fixture(scope="module")
def lasting_id(migrating: Rig) -> str:
    """For migrations that change nothing."""
    return made(migrating, "mariadb")


def migrate(rig: Rig, instance_id: str, shop: MariaDBDatabase, **more: Any) -> str:
    dry_run = more.pop("dry_run", False)
    migration_id = begun(rig, instance_id, CONNECTION, dry_run=dry_run)
    connect(rig, instance_id, migration_id, shop, **more)
    return migration_id


def refused(rig: Rig, instance_id: str, shop: MariaDBDatabase, **more: Any) -> dict[str, Any]:
    seen = status_is(rig, instance_id, migrate(rig, instance_id, shop, **more), "failed")
    assert PASSWORD not in str(seen)
    unchanged(rig, instance_id)
    return seen


def unchanged(rig: Rig, instance_id: str) -> None:
    databases = {name for (name,) in rows(rig, instance_id, "SHOW DATABASES")}
    assert databases - SYSTEMS == {"app"}
    assert rows(rig, instance_id, "SHOW TABLES") == []
    assert not (rig.home / "instances" / instance_id / "migration").exists()
    assert scratches(rig) == []


def findings(seen: dict[str, Any]) -> dict[str, list[dict[str, Any]]]:
    found: dict[str, list[dict[str, Any]]] = {}
    for each in seen["preflight"]["findings"]:
        found.setdefault(each["code"], []).append(each)
    return found


@pytest.mark.timeout(200)
def test_everything_comes_over_equal(
    migrating: Rig, mariadb_id: str, mariadb_shop: MariaDBDatabase
) -> None:
    mariadb_shop.ask(*EVERYTHING)
    migration_id = migrate(migrating, mariadb_id, mariadb_shop)
    seen = status_is(migrating, mariadb_id, migration_id, "completed")
    assert seen["verification"]["differences"] == []
    compared = seen["verification"]["tables_compared"], seen["verification"]["rows_compared"]
    assert compared == (3, 2005)
    progress = seen["progress"]
    assert progress["bytes_done"] == progress["bytes_total"] > 0
    assert PASSWORD not in str(seen)
    for asked in ("SELECT * FROM every ORDER BY n", "SELECT * FROM twins ORDER BY n, t"):
        assert rows(migrating, mariadb_id, asked) == mariadb_shop.ask(asked)
    rows(migrating, mariadb_id, "INSERT INTO none VALUES (1)")
    assert rows(migrating, mariadb_id, "SELECT * FROM seen") == [(2,)]
    assert rows(migrating, mariadb_id, "CALL many()") == [(2001,)]
    assert rows(migrating, mariadb_id, "SELECT NEXT VALUE FOR counted") == [(5,)]
    events = "SELECT EVENT_NAME, STATUS, DEFINER FROM information_schema.EVENTS"
    assert rows(migrating, mariadb_id, events) == [("daily", "DISABLED", "app@%")]
    assert mariadb_shop.sessions() == 0
    assert PASSWORD not in migrating.log_path.read_text()
    again = migrate(migrating, mariadb_id, mariadb_shop)
    assert "has data already" in status_is(migrating, mariadb_id, again, "failed")["reason"]


@contextlib.contextmanager
def writing(shop: MariaDBDatabase) -> Iterator[list[int]]:
    """All the while, in transactions of two rows; how many were made."""
    ended, made_ones = threading.Event(), [0]

    def write() -> None:
        with shop.server.connect(shop.name) as connection, connection.cursor() as cursor:
            while not ended.is_set():
                connection.begin()
                for each in WRITES:
                    cursor.execute(each)
                connection.commit()
                made_ones[0] += 1

    thread = threading.Thread(target=write)
    thread.start()
    try:
        yield made_ones
    finally:
        ended.set()
        thread.join()


@pytest.mark.nightly
@pytest.mark.timeout(200)
def test_what_is_written_meanwhile_is_of_another_moment(
    migrating: Rig, mariadb_id: str, mariadb_shop: MariaDBDatabase
) -> None:
    mariadb_shop.ask(
        "CREATE TABLE items (n INT PRIMARY KEY)",
        "CREATE TABLE many AS SELECT seq AS n, REPEAT('x', 200) AS t FROM seq_1_to_50000",
        "CREATE TABLE orders (n INT PRIMARY KEY AUTO_INCREMENT)",
        "INSERT INTO orders VALUES (1)",
    )
    with writing(mariadb_shop) as written:
        migration_id = migrate(migrating, mariadb_id, mariadb_shop)
        seen = status_is(migrating, mariadb_id, migration_id, "completed")
        at_end = written[0]
    asked = "SELECT (SELECT COUNT(*) FROM items), (SELECT COUNT(*) FROM orders)"
    ((items, orders),) = rows(migrating, mariadb_id, asked)
    assert orders == items + 1, "of one moment"
    assert 0 < orders < at_end
    assert seen["verification"]["rows_compared"] == 50_000 + items + orders


@pytest.mark.nightly
@pytest.mark.timeout(200)
def test_without_a_database_all_come_under_their_names(
    migrating: Rig, mariadb_id: str, mariadb_shop: MariaDBDatabase
) -> None:
    other = mariadb_shop.server.new_database()
    mariadb_shop.ask("CREATE TABLE a (n INT PRIMARY KEY)", "INSERT INTO a VALUES (1), (2)")
    other.ask("CREATE TABLE b (n INT PRIMARY KEY)", "INSERT INTO b VALUES (3)")
    uri = mariadb_shop.as_user(mariadb_server.USER, "")
    rehearsal = migrate(migrating, mariadb_id, mariadb_shop, uri=uri, dry_run=True)
    seen = status_is(migrating, mariadb_id, rehearsal, "completed")
    assert other.name in findings(seen)["databases"][0]["message"]
    unchanged(migrating, mariadb_id)
    migration_id = migrate(migrating, mariadb_id, mariadb_shop, uri=uri)
    status_is(migrating, mariadb_id, migration_id, "completed")
    asked = f"SELECT n FROM {mariadb_shop.name}.a UNION ALL SELECT n FROM {other.name}.b ORDER BY 1"
    assert rows(migrating, mariadb_id, asked) == [(1,), (2,), (3,)]
    other.ask(f"DROP DATABASE {other.name}")


@pytest.mark.nightly
@pytest.mark.timeout(200)
def test_what_the_source_refuses_is_told(
    migrating: Rig, lasting_id: str, mariadb_shop: MariaDBDatabase
) -> None:
    mariadb_shop.ask("CREATE TABLE t (n INT PRIMARY KEY)")
    user, given = mariadb_server.USER, (migrating, lasting_id, mariadb_shop)
    wrong = mariadb_shop.as_user(user, password="wrong secret")
    seen = refused(*given, uri=wrong)
    assert "refused the login: Access denied" in seen["reason"]
    assert "wrong secret" not in str(seen)
    assert "certificate of the source is not valid" in refused(*given, ca_pem=None)["reason"]
    other = mariadb_shop.uri.replace("localhost", "127.0.0.2")
    reason = refused(*given, uri=other)["reason"]
    assert "cannot be reached" in reason or "certificate" in reason
    assert "refused the login" in refused(*given, tls="off")["reason"]
    system = mariadb_shop.as_user(user, "mysql")
    assert "the server's own" in refused(*given, uri=system)["reason"]
    absent = mariadb_shop.as_user(user, "shop_absent")
    assert "has no database shop_absent" in refused(*given, uri=absent)["reason"]
    loose = migrate(*given, ca_pem=None, tls="require", dry_run=True)
    status_is(migrating, lasting_id, loose, "completed")
    assert mariadb_shop.sessions() == 0


@pytest.mark.timeout(200)
def test_what_the_user_lacks_is_found_before(
    migrating: Rig, lasting_id: str, mariadb_shop: MariaDBDatabase
) -> None:
    name, reader = mariadb_shop.name, mariadb_server.READER
    mariadb_shop.ask(
        "CREATE TABLE t (n INT PRIMARY KEY)",
        "CREATE TABLE hidden (n INT PRIMARY KEY)",
        "CREATE VIEW v AS SELECT n FROM t",
        "CREATE PROCEDURE p() SELECT 1",
        f"GRANT SELECT ON {name}.t TO {reader}@'%'",
        f"GRANT INSERT ON {name}.hidden TO {reader}@'%'",
        f"GRANT SELECT ON {name}.v TO {reader}@'%'",
        f"GRANT EXECUTE ON {name}.* TO {reader}@'%'",
    )
    uri = mariadb_shop.as_user(reader)
    seen = refused(migrating, lasting_id, mariadb_shop, uri=uri)
    lacking = {each["message"] for each in findings(seen)["missing_right"]}
    for told in (
        *("the right SELECT: it cannot read the rows of hidden", "the right TRIGGER: it does not"),
        *("the right EVENT: events", "how the view is defined", "how the routine is defined"),
    ):
        assert any(told in each for each in lacking), (told, lacking)
    assert all(each["remedy"] for each in findings(seen)["missing_right"])
    mariadb_shop.ask(
        f"GRANT SELECT, SHOW VIEW, TRIGGER, EVENT ON {name}.* TO {reader}@'%'",
        f"GRANT SELECT ON mysql.proc TO {reader}@'%'",
    )
    enough = migrate(migrating, lasting_id, mariadb_shop, uri=uri, dry_run=True)
    status_is(migrating, lasting_id, enough, "completed")


@pytest.mark.timeout(200)
def test_what_would_differ_is_found_before(
    migrating: Rig, lasting_id: str, mariadb_shop: MariaDBDatabase
) -> None:
    mariadb_shop.ask(
        "CREATE TABLE a (n INT) ENGINE=MyISAM",
        "CREATE TABLE b (n INT PRIMARY KEY) WITH SYSTEM VERSIONING",
        "CREATE TABLE c (n INT) ENGINE=MEMORY",
        "INSERT INTO c VALUES (1)",
        "CREATE EVENT e ON SCHEDULE EVERY 1 DAY DO SELECT 1",
    )
    seen = refused(migrating, lasting_id, mariadb_shop)
    found = findings(seen)
    assert {code: each[0]["severity"] for code, each in found.items()} == {
        "databases": "info",
        "not_transactional": "warning",
        "history": "warning",
        "rows_in_memory": "blocking",
        "tables_without_primary_key": "info",
        "definers": "info",
        "events": "info",
    }
    assert f"{mariadb_shop.name}.a" in found["not_transactional"][0]["message"]
    source = seen["preflight"]["source"]
    assert (source["engine"], source["version"].startswith("10.11")) == ("mariadb", True)
    assert source["size_bytes"] > 0


@contextlib.contextmanager
def locked(shop: MariaDBDatabase, table: str) -> Iterator[None]:
    """Nobody else reads it meanwhile."""
    with shop.server.connect(shop.name) as connection, connection.cursor() as cursor:
        cursor.execute(f"LOCK TABLES {table} WRITE")
        yield


@pytest.mark.nightly
@pytest.mark.timeout(200)
def test_a_copy_that_waits_is_cancelled_or_ends(
    migrating: Rig, lasting_id: str, mariadb_shop: MariaDBDatabase
) -> None:
    mariadb_shop.ask("CREATE TABLE t (n INT PRIMARY KEY)", "CREATE TABLE z (n INT PRIMARY KEY)")
    given = (migrating, lasting_id, mariadb_shop)
    with locked(mariadb_shop, "z"):
        migration_id = migrate(*given)
        status_is(migrating, lasting_id, migration_id, "copying")
        until(lambda: waiting(mariadb_shop), "the dump waits")
        migrating.act("DELETE", path_of(lasting_id, migration_id))
        seen = status_is(migrating, lasting_id, migration_id, "cancelled")
        assert seen["reason"] is None
        unchanged(migrating, lasting_id)
        until(lambda: not waiting(mariadb_shop), "nothing is left at the source")
        assert "a lock may be held" in refused(*given)["reason"]
        until(lambda: not waiting(mariadb_shop), "nothing is left at the source")
        migration_id = migrate(*given)
        until(lambda: waiting(mariadb_shop), "the dump waits")
        for number in waiting(mariadb_shop):
            mariadb_shop.ask(f"KILL {number}")
        seen = status_is(migrating, lasting_id, migration_id, "failed")
        assert "ended the connection" in seen["reason"]
        unchanged(migrating, lasting_id)
    until(lambda: mariadb_shop.sessions() == 0, "nothing is left at the source")


def waiting(shop: MariaDBDatabase) -> list[int]:
    """Sessions of migrations that wait for a lock."""
    asked = "SELECT ID FROM information_schema.PROCESSLIST WHERE STATE LIKE 'Waiting for table%%'"
    return [int(number) for (number,) in shop.ask(asked)]


@pytest.mark.timeout(200)
@pytest.mark.nightly
@pytest.mark.parametrize("after_s", [0.0, 0.3, 1.0, 2.0, 4.0])
def test_a_killed_cell_goes_on(
    migrating: Rig, mariadb_id: str, mariadb_shop: MariaDBDatabase, after_s: float
) -> None:
    mariadb_shop.ask("CREATE TABLE t AS SELECT seq AS n FROM seq_1_to_50000")
    migration_id = migrate(migrating, mariadb_id, mariadb_shop)
    time.sleep(after_s)
    kill_and_go_on(migrating, mariadb_id, migration_id, 50_000)


@pytest.mark.nightly
@pytest.mark.timeout(200)
def test_a_cell_that_is_killed_during_the_dump_begins_it_anew(
    migrating: Rig, mariadb_id: str, mariadb_shop: MariaDBDatabase
) -> None:
    mariadb_shop.ask("CREATE TABLE t AS SELECT seq AS n FROM seq_1_to_9", "CREATE TABLE z (n INT)")
    with locked(mariadb_shop, "z"):
        migration_id = migrate(migrating, mariadb_id, mariadb_shop)
        until(lambda: waiting(mariadb_shop), "the dump waits")
        migrating.kill()
    migrating.start()
    kill_and_go_on(migrating, mariadb_id, migration_id, 9, kills=False)
    until(lambda: mariadb_shop.sessions() == 0, "nothing is left at the source")


def kill_and_go_on(
    rig: Rig, instance_id: str, migration_id: str, count: int, *, kills: bool = True
) -> None:
    if kills:
        rig.kill()
        rig.start()
    seen = status_is(rig, instance_id, migration_id, "completed")
    assert seen["verification"]["differences"] == []
    rig.status_is(instance_id, "running")
    assert rows(rig, instance_id, "SELECT COUNT(*) FROM t") == [(count,)]
    assert scratches(rig) == []


def test_what_a_uri_may_not_say_is_refused(migrating: Rig, lasting_id: str) -> None:
    migration_id = begun(migrating, lasting_id, CONNECTION)
    for uri in ("postgresql://a:b@127.0.0.1/c", "mysql://:b@127.0.0.1", "mysql://a:b@h?init=x"):
        answer = send(migrating, token(migrating, lasting_id, migration_id), {"uri": uri})
        assert answer.status_code == 422, answer.text
    migrating.act("DELETE", path_of(lasting_id, migration_id))
    status_is(migrating, lasting_id, migration_id, "cancelled")
