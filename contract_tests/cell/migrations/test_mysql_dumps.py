"""Dumps of MySQL and MariaDB become the data of a MariaDB, or nothing is changed."""

import io
import subprocess
import time
from typing import Any

import pymysql
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cell.migrations import mysql_dumps
from contract_tests.cell.migrations.migration_calls import path_of, status_is
from contract_tests.cell.migrations.test_files import made, sent
from contract_tests.cell.rig import Rig, until

# As mysqldump 8.0 writes it, by hand.
MYSQL_8 = rb"""-- MySQL dump 10.13  Distrib 8.0.36, for Linux (x86_64)
--
-- Host: localhost    Database: shop
-- ------------------------------------------------------
-- Server version	8.0.36

/*!40101 SET @OLD_CHARACTER_SET_CLIENT=@@CHARACTER_SET_CLIENT */;
/*!50503 SET NAMES utf8mb4 */;
/*!40014 SET @OLD_FOREIGN_KEY_CHECKS=@@FOREIGN_KEY_CHECKS, FOREIGN_KEY_CHECKS=0 */;
SET @MYSQLDUMP_TEMP_LOG_BIN = @@SESSION.SQL_LOG_BIN;
SET @@SESSION.SQL_LOG_BIN= 0;

--
-- GTID state at the beginning of the backup
--

SET @@GLOBAL.GTID_PURGED=/*!80000 '+'*/ 'a1b2c3d4-0000-0000-0000-000000000000:1-5,
b1b2c3d4-0000-0000-0000-000000000000:1-7';

DROP TABLE IF EXISTS `goods`;
/*!50503 SET character_set_client = utf8mb4 */;
CREATE TABLE `goods` (
  `n` int NOT NULL AUTO_INCREMENT,
  `t` varchar(99) CHARACTER SET utf8mb4 COLLATE utf8mb4_0900_ai_ci DEFAULT NULL,
  `b` varbinary(20) DEFAULT NULL,
  PRIMARY KEY (`n`)
) ENGINE=InnoDB AUTO_INCREMENT=4 DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_0900_ai_ci;

LOCK TABLES `goods` WRITE;
/*!40000 ALTER TABLE `goods` DISABLE KEYS */;
INSERT INTO `goods` VALUES (1,'DEFINER=`root`@`localhost` utf8mb4_0900_ai_ci \\! touch x',0x00FF),(2,'a;\nb','x'),(3,NULL,NULL);
/*!40000 ALTER TABLE `goods` ENABLE KEYS */;
UNLOCK TABLES;
DELIMITER ;;
/*!50003 CREATE*/ /*!50017 DEFINER=`root`@`localhost`*/ /*!50003 TRIGGER `shout` BEFORE INSERT ON `goods` FOR EACH ROW SET NEW.t = UPPER(NEW.t) */;;
CREATE DEFINER=`admin`@`10.%` PROCEDURE `many`()
BEGIN
  SELECT count(*) AS c FROM goods;
END ;;
DELIMITER ;
/*!50001 CREATE ALGORITHM=UNDEFINED */
/*!50013 DEFINER=`root`@`localhost` SQL SECURITY DEFINER */
/*!50001 VIEW `seen` AS select `goods`.`n` AS `n` from `goods` */;

-- Dump completed on 2026-11-27 12:00:00
"""  # noqa: E501
HEAD = b"-- MariaDB dump 10.19  Distrib 10.11.18-MariaDB\n"
TAIL = b"\n-- Dump completed on 2026-11-27 12:00:00\n"
REFUSED = {
    "no dump": (b"SELECT 1;\n" * 50, "is not one that mariadb takes"),
    "cut off": (MYSQL_8[:-60], "may be cut off"),
    "an error": (HEAD + b"CREATE TABLE a (n INT);\nCREATE TABLE a (n INT);\n" + TAIL, "1050"),
    "rights": (HEAD + b"CREATE TABLE a (n INT);\nSET GLOBAL read_only = 1;\n" + TAIL, "1227"),
    "the server's own": (HEAD + b"USE mysql;\nDELETE FROM global_priv;\n" + TAIL, "denied"),
    "rows in no copy": (
        HEAD + b"CREATE TABLE a (n INT) ENGINE=MEMORY;\nINSERT INTO a VALUES (1);\n" + TAIL,
        "app.a has the engine MEMORY",
    ),
    "an account": (HEAD + b"CREATE USER other IDENTIFIED BY 'x';\n" + TAIL, "1227"),
    "a file": (
        HEAD
        + b"CREATE TABLE a (t TEXT);\nLOAD DATA LOCAL INFILE '/etc/passwd' INTO TABLE a;\n"
        + TAIL,
        "4166|1148",
    ),
}


@pytest.fixture
def mariadb_id(migrating: Rig) -> str:
    return made(migrating, "mariadb")


def rows(rig: Rig, instance_id: str, sql: str) -> list[tuple[Any, ...]]:
    route, secret = rig.route(instance_id), rig.reveal(instance_id)
    assert route is not None
    with pymysql.connect(
        unix_socket=route["socket"],
        user=secret["username"],
        password=secret["password"],
        database="app",
        autocommit=True,
    ) as connection:
        cursor = connection.cursor()
        cursor.execute(sql)
        return list(cursor.fetchall())


@pytest.mark.nightly
@pytest.mark.timeout(300)
def test_a_dump_of_mysql_becomes_the_data(migrating: Rig, mariadb_id: str) -> None:
    rehearsal = sent(migrating, mariadb_id, MYSQL_8, dry_run=True)
    seen = status_is(migrating, mariadb_id, rehearsal, "completed")
    assert seen["preflight"]["source"]["version"] == "8.0.36"
    assert rows(migrating, mariadb_id, "SHOW TABLES") == []
    seen = status_is(migrating, mariadb_id, sent(migrating, mariadb_id, MYSQL_8), "completed")
    assert (seen["verification"]["tables_compared"], seen["verification"]["rows_compared"]) == (
        3,
        3,
    )
    found = rows(migrating, mariadb_id, "SELECT * FROM goods ORDER BY n")
    text = r"DEFINER=`root`@`localhost` utf8mb4_0900_ai_ci \! touch x"
    assert found == [(1, text, b"\0\xff"), (2, "a;\nb", b"x"), (3, None, None)]
    rows(migrating, mariadb_id, "INSERT INTO goods (t) VALUES ('loud')")
    assert rows(migrating, mariadb_id, "SELECT t FROM goods WHERE n = 4") == [("LOUD",)]
    assert rows(migrating, mariadb_id, "CALL many()") == [(4,)]
    assert len(rows(migrating, mariadb_id, "SELECT * FROM seen")) == 4
    definers = "SELECT DISTINCT DEFINER FROM information_schema.VIEWS"
    assert rows(migrating, mariadb_id, definers) == [("app@%",)]
    again = status_is(migrating, mariadb_id, sent(migrating, mariadb_id, MYSQL_8), "failed")
    assert "has data already" in again["reason"]
    migrating.action(mariadb_id, "erase")


@pytest.mark.nightly
@pytest.mark.timeout(300)
def test_what_mariadb_dumps_it_takes(migrating: Rig, mariadb_id: str) -> None:
    """Of an instance, with all that the tool writes beside rows."""
    source_id = made(migrating, "mariadb")
    rows(
        migrating,
        source_id,
        "CREATE TABLE many AS SELECT seq AS n, REPEAT('x', 50) AS t FROM seq_1_to_20000",
    )
    rows(migrating, source_id, "CREATE SEQUENCE counted START 5")
    rows(migrating, source_id, "CREATE EVENT daily ON SCHEDULE EVERY 1 DAY DISABLE DO SELECT 1")
    rows(migrating, source_id, "CREATE TABLE kept (n INT) WITH SYSTEM VERSIONING")
    answer = migrating.client().get(f"/v1/dump/{migrating.token(source_id, 'dump')}")
    assert answer.status_code == 200, answer.text
    seen = status_is(
        migrating, mariadb_id, sent(migrating, mariadb_id, answer.content), "completed"
    )
    assert seen["verification"]["rows_compared"] == 20000
    assert rows(migrating, mariadb_id, "SELECT COUNT(*), SUM(n) FROM many") == [(20000, 200010000)]
    assert rows(migrating, mariadb_id, "SELECT NEXT VALUE FOR counted") == [(5,)]
    events = "SELECT EVENT_NAME, STATUS FROM information_schema.EVENTS"
    assert rows(migrating, mariadb_id, events) == [("daily", "DISABLED")]
    for instance_id in (source_id, mariadb_id):
        migrating.action(instance_id, "erase")


@pytest.mark.nightly
@pytest.mark.timeout(300)
def test_what_fails_changes_nothing(migrating: Rig, mariadb_id: str) -> None:
    process = migrating.observe(mariadb_id)["started_at"]
    for name, (content, told) in REFUSED.items():
        seen = status_is(migrating, mariadb_id, sent(migrating, mariadb_id, content), "failed")
        assert any(each in seen["reason"] for each in told.split("|")), (name, seen["reason"])
        assert rows(migrating, mariadb_id, "SHOW TABLES") == [], name
    assert migrating.observe(mariadb_id)["started_at"] == process, "its engine ran on"
    assert scratches(migrating) == []
    assert subprocess.run(["test", "-e", "/tmp/attacked"], check=False).returncode == 1
    migrating.action(mariadb_id, "erase")


COMMANDS = [
    b"\\! touch /tmp/attacked",
    b"system touch /tmp/attacked",
    b"source /etc/passwd",
    b"tee /tmp/attacked",
]


@pytest.mark.nightly
@pytest.mark.timeout(300)
@pytest.mark.parametrize("command", COMMANDS)
def test_a_command_of_the_client_is_none(migrating: Rig, mariadb_id: str, command: bytes) -> None:
    content = HEAD + b"CREATE TABLE a (n INT);\n" + command + b"\n;\n" + TAIL
    seen = status_is(migrating, mariadb_id, sent(migrating, mariadb_id, content), "failed")
    assert "1064" in seen["reason"] or "Unknown command" in seen["reason"]
    assert subprocess.run(["test", "-e", "/tmp/attacked"], check=False).returncode == 1
    migrating.action(mariadb_id, "erase")


@pytest.mark.timeout(300)
def test_one_that_takes_for_ever_is_cancelled(migrating: Rig, mariadb_id: str) -> None:
    content = HEAD + b"CREATE TABLE a (n INT);\nSELECT SLEEP(3600);\n" + TAIL
    migration_id = sent(migrating, mariadb_id, content)
    status_is(migrating, mariadb_id, migration_id, "copying")
    until(lambda: scratches(migrating), "a scratch engine runs")
    answer = migrating.act("DELETE", path_of(mariadb_id, migration_id))
    assert answer.status_code == 200, answer.text
    status_is(migrating, mariadb_id, migration_id, "cancelled")
    until(lambda: not scratches(migrating), "nothing of it is left")
    assert rows(migrating, mariadb_id, "SHOW TABLES") == []
    migrating.action(mariadb_id, "erase")


def scratches(rig: Rig) -> list[str]:
    names = [path.name for path in (rig.home / "instances").iterdir()]
    return [name for name in names if name.startswith("inst_verify_")]


@pytest.mark.nightly
@pytest.mark.timeout(400)
@pytest.mark.parametrize("after_s", [0.0, 0.5, 1.0, 2.0, 3.0])
def test_a_killed_cell_goes_on(migrating: Rig, mariadb_id: str, after_s: float) -> None:
    migration_id = sent(migrating, mariadb_id, MYSQL_8)
    time.sleep(after_s)
    migrating.kill()
    migrating.start()
    status_is(migrating, mariadb_id, migration_id, "completed")
    migrating.status_is(mariadb_id, "running")
    assert len(rows(migrating, mariadb_id, "SELECT * FROM goods")) == 3
    assert scratches(migrating) == []
    migrating.action(mariadb_id, "erase")


LINES = st.lists(
    st.one_of(
        st.binary(max_size=40).map(
            lambda some: b"INSERT INTO t VALUES (" + some.replace(b"\n", b" ")
        ),
        st.just(b"INSERT INTO t VALUES ('" + b"DEFINER=`a`@`b`" * 6000),
        st.sampled_from(
            [b"CREATE TABLE t (n INT);", b"", b"DELIMITER ;;", b"(1, 'DEFINER=`a`@`b`'),"]
        ),
    ),
    max_size=8,
)


@given(lines=LINES)
def test_rows_are_passed_on_as_they_are(lines: list[bytes]) -> None:
    content = b"\n".join(lines)
    assert b"".join(mysql_dumps.sql(io.BytesIO(content))) == content


def test_what_only_an_administrator_may_is_left_out() -> None:
    found = b"".join(mysql_dumps.sql(io.BytesIO(MYSQL_8)))
    for left_out in (
        b"GTID_PURGED",
        b"SQL_LOG_BIN",
        b"b1b2c3d4",
        b"`admin`@",
        b"COLLATE=utf8mb4_0900",
    ):
        assert left_out not in found
    assert found.count(b"\n") == MYSQL_8.count(b"\n"), "errors name the right line"
