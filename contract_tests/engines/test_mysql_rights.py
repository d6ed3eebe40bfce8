"""What the owner of a MariaDB instance may do, and what is refused whatever is tried."""

import secrets
from pathlib import Path

import pymysql
import pytest

from cell.engines.driver import Login
from contract_tests.attacks.statements import fill, said
from contract_tests.engines.conftest import Subject
from contract_tests.engines.mysql_sessions import administrator, on_mariadb, rows, session

REFUSED = [fill(statement) for statement in said("mariadb", outcome="refused")]

PERMITTED = """
CREATE DATABASE shop CHARACTER SET utf8mb4
CREATE DATABASE sys
CREATE TABLE shop.orders (id INT PRIMARY KEY AUTO_INCREMENT, words TEXT, FULLTEXT (words))
ALTER TABLE shop.orders ADD COLUMN made_at TIMESTAMP DEFAULT CURRENT_TIMESTAMP
CREATE INDEX made ON shop.orders (made_at)
CREATE TABLE shop.lines (n INT, id INT, FOREIGN KEY (id) REFERENCES shop.orders (id))
CREATE TABLE shop.history (a INT) WITH SYSTEM VERSIONING
DELETE HISTORY FROM shop.history
CREATE VIEW shop.words AS SELECT words FROM shop.orders
CREATE SEQUENCE shop.numbers
CREATE TEMPORARY TABLE shop.now (a INT)
CREATE PROCEDURE shop.p() SELECT COUNT(*) FROM shop.orders
CREATE FUNCTION shop.one() RETURNS INT RETURN 1
CREATE TRIGGER shop.t BEFORE INSERT ON shop.orders FOR EACH ROW SET NEW.words = UPPER(NEW.words)
CREATE EVENT shop.e ON SCHEDULE EVERY 1 DAY DO DELETE FROM shop.lines
INSERT INTO shop.orders (words) VALUES ('kept')
LOCK TABLES shop.orders WRITE
UNLOCK TABLES
CALL shop.p()
SET SESSION sql_mode = 'ANSI'
SET SESSION max_statement_time = 60
SHOW PROCESSLIST
ANALYZE TABLE shop.orders
SELECT * FROM performance_schema.events_statements_summary_by_digest
SELECT * FROM performance_schema.table_io_waits_summary_by_table
DROP DATABASE shop
""".strip().splitlines()


@on_mariadb
def test_hostile_statements_are_refused(running: Subject) -> None:
    rows(running, "CREATE TABLE mine (a TEXT)")
    # What one did to its session must not help the next, so each has one of its own.
    assert [statement for statement in REFUSED if _works(running, statement)] == []
    assert running.works(running.login)
    assert [name for (name,) in rows(running, "SHOW TABLES")] == ["mine"]
    assert sorted(path.name for path in running.site.run.outside.iterdir()) == [
        "engine.pid",
        "engine.sock",
    ]


@on_mariadb
def test_files_cannot_be_read_and_tables_stay_in_their_folder(running: Subject) -> None:
    for name in ("/etc/passwd", "/instance/conf/accounts.sql", str(running.site.log)):
        assert rows(running, f"SELECT LOAD_FILE('{name}')") == [(None,)]
    rows(running, "CREATE TABLE here (a INT) ENGINE=MyISAM DATA DIRECTORY='/instance/run'")
    rows(running, "CREATE TABLE there (a INT) ENGINE=InnoDB DATA DIRECTORY='/instance/run/x'")
    found = {path.name for path in (running.site.data.outside / "db" / "app").iterdir()}
    assert {"here.MYD", "there.ibd"} <= found
    assert not [path for path in running.site.data.outside.rglob("*") if path.is_symlink()]
    assert not (running.site.run.outside / "x").exists()


@on_mariadb
def test_an_owner_works_with_databases_of_their_own(running: Subject, tmp_path: Path) -> None:
    with session(running.site, running.login) as cursor:
        for statement in PERMITTED:
            cursor.execute(statement)
    # The client's own files may be loaded, where the client wants that.
    words = tmp_path / "words.csv"
    words.write_text("1\n2\n")
    with session(running.site, running.login, local_infile=True) as cursor:
        cursor.execute("CREATE TABLE loaded (a INT)")
        cursor.execute(f"LOAD DATA LOCAL INFILE '{words}' INTO TABLE loaded")
        cursor.execute("SELECT SUM(a) FROM loaded")
        assert cursor.fetchone() == (3,)


@on_mariadb
def test_what_an_owner_dropped_does_not_come_back(running: Subject) -> None:
    """But for the one that the URI names; see test_mysql_lost_database.py."""
    rows(running, "CREATE DATABASE own")
    rows(running, "DROP DATABASE own")
    running.stop()
    running.start()
    with session(running.site, running.login, database=None) as cursor:
        cursor.execute("SHOW DATABASES")
        names = [name for (name,) in cursor.fetchall()]
    assert "own" not in names
    assert "sys" not in names


@on_mariadb
def test_nobody_else_can_log_in(running: Subject) -> None:
    """Tried by the user that the gateway runs as, which must not count."""
    for username in ("root", "mysql", "menagerie", "mariadb.sys", "", "app"):
        for password in ("", secrets.token_urlsafe()):
            assert not running.works(Login(username, password))


@on_mariadb
def test_other_sessions_of_the_owner_can_be_ended_and_the_administrators_not(
    running: Subject,
) -> None:
    other = pymysql.connect(
        unix_socket=str(running.site.socket),
        user="app",
        password=running.login.password,
        ssl_disabled=True,
    )
    rows(running, f"KILL {other.thread_id()}")
    with pytest.raises(pymysql.err.OperationalError):
        other.query("SELECT 1")
    ours = administrator(running)
    path = str(running.site.socket)
    kept = pymysql.connect(unix_socket=path, user=ours.username, password=ours.password)
    with pytest.raises(pymysql.err.OperationalError, match="not owner"):
        rows(running, f"KILL {kept.thread_id()}")
    rows(running, f"KILL USER {ours.username}@localhost")
    kept.ping(reconnect=False)
    kept.close()


def _works(subject: Subject, statement: str) -> bool:
    try:
        rows(subject, statement)
    except pymysql.err.MySQLError:
        return False
    return True
