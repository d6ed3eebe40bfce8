"""What the owner of a MariaDB instance may do, and what is refused whatever is tried."""

import secrets
from pathlib import Path

import pymysql
import pytest

from cell.engines.driver import Login
from contract_tests.engines.conftest import Subject
from contract_tests.engines.mysql_sessions import administrator, on_mariadb, rows, session

REFUSED = """
SELECT * FROM mysql.user
SELECT * FROM mysql.global_priv
SELECT * FROM mysql.db
SELECT * FROM mysql.innodb_table_stats
SELECT * FROM `#mysql50#mysql`.global_priv
SELECT * FROM `MYSQL`.global_priv
SELECT * FROM `mysql `.global_priv
USE `#mysql50#mysql`
USE mysql
SHOW TABLES FROM mysql
SELECT * FROM `#mysql50#mysql`.proc
UPDATE `#mysql50#mysql`.proc SET definer = 'menagerie@localhost'
INSERT INTO `#mysql50#mysql`.plugin VALUES ('a', 'b')
CREATE TABLE app.z LIKE `#mysql50#mysql`.global_priv
CREATE VIEW app.z AS SELECT * FROM `#mysql50#mysql`.global_priv
CREATE TABLE `#mysql50#mysql`.z (a INT)
CREATE TABLE `#mysql50#app`.z (a INT)
RENAME TABLE app.mine TO `#mysql50#mysql`.mine
ALTER TABLE app.mine RENAME `#mysql50#mysql`.mine
CREATE DATABASE `#mysql50#z`
ALTER DATABASE `#mysql50#mysql` UPGRADE DATA DIRECTORY NAME
DROP DATABASE `#mysql50#mysql`
HANDLER `#mysql50#mysql`.global_priv OPEN
BACKUP LOCK `#mysql50#mysql`.proc
ALTER TABLE `#mysql50#mysql`.innodb_table_stats DISCARD TABLESPACE
SELECT * FROM app.`#mysql50#../mysql/global_priv`
SELECT * FROM app.`../mysql/global_priv`
SELECT * FROM `#mysql50#./mysql`.global_priv
SELECT * FROM `#mysql50#performance_schema`.threads
SELECT * FROM performance_schema.threads
SELECT * FROM performance_schema.events_statements_current
SELECT * FROM performance_schema.events_statements_history_long
SELECT * FROM performance_schema.accounts
SELECT * FROM performance_schema.file_instances
SELECT * FROM performance_schema.prepared_statements_instances
SELECT * FROM `performance\\_schema`.threads
UPDATE performance_schema.setup_consumers SET ENABLED = 'YES'
TRUNCATE performance_schema.events_statements_summary_by_digest
SHOW CREATE PROCEDURE mysql.AddGeometryColumn
CALL mysql.AddGeometryColumn('', '', 'a', 'b', 1)
SHOW EXPLAIN FOR 1
DESCRIBE mysql.global_priv
PREPARE s FROM 'SELECT * FROM mysql.global_priv'
EXECUTE IMMEDIATE 'SELECT * FROM mysql.global_priv'
HANDLER mysql.global_priv OPEN
CHECKSUM TABLE mysql.global_priv
INSERT INTO mysql.plugin VALUES ('a', 'b')
UPDATE mysql.global_priv SET Priv = '{}'
DELETE FROM mysql.global_priv
CREATE TABLE mysql.x (a int)
CREATE TEMPORARY TABLE mysql.x (a int)
CREATE TABLE app.z LIKE mysql.global_priv
CREATE TABLE app.z AS SELECT * FROM mysql.global_priv
CREATE VIEW app.z AS SELECT * FROM mysql.global_priv
CREATE DEFINER=`mariadb.sys`@localhost VIEW app.z AS SELECT 1
CREATE DEFINER=menagerie@localhost PROCEDURE app.z() SELECT 1
CREATE DEFINER=menagerie@localhost EVENT app.z ON SCHEDULE EVERY 1 SECOND DO SELECT 1
CREATE DEFINER=menagerie@localhost TRIGGER app.z BEFORE INSERT ON app.mine FOR EACH ROW SET @a=1
CREATE PROCEDURE mysql.z() SELECT 1
CREATE TRIGGER mysql.z BEFORE INSERT ON mysql.proc FOR EACH ROW SET @a = 1
CREATE TABLE app.z (Host char(255), Db char(64)) ENGINE=MRG_MyISAM UNION=(mysql.db)
RENAME TABLE app.mine TO mysql.mine
LOCK TABLES mysql.global_priv READ
ALTER DATABASE mysql CHARACTER SET latin1
DROP DATABASE mysql
DROP DATABASE information_schema
REPAIR TABLE mysql.global_priv
OPTIMIZE TABLE mysql.db
SELECT 1 INTO OUTFILE '/instance/run/z'
SELECT 1 INTO OUTFILE '/instance/conf/nothing/z'
SELECT 1 INTO DUMPFILE '/instance/data/z'
LOAD DATA INFILE '/etc/passwd' INTO TABLE app.mine
LOAD DATA INFILE '/instance/conf/accounts.sql' INTO TABLE app.mine
LOAD XML INFILE '/etc/passwd' INTO TABLE app.mine
INSTALL PLUGIN z SONAME 'ha_federatedx.so'
INSTALL SONAME 'ha_federatedx'
INSTALL SONAME 'auth_pam'
UNINSTALL PLUGIN mysql_native_password
CREATE FUNCTION sys_exec RETURNS INTEGER SONAME 'lib_mysqludf_sys.so'
CREATE SERVER z FOREIGN DATA WRAPPER mysql OPTIONS (HOST '127.0.0.1')
CREATE TABLE app.z (a int) ENGINE=FEDERATED CONNECTION='mysql://root@127.0.0.1/x/y'
CREATE TABLE app.z (a int) ENGINE=CONNECT TABLE_TYPE=CSV FILE_NAME='/etc/passwd'
CREATE TABLE app.z (a int) ENGINE=CONNECT TABLE_TYPE=JSON HTTP='http://127.0.0.1/'
CREATE TABLE app.z (a int) ENGINE=SPIDER COMMENT='host "127.0.0.1", port "3306"'
SET GLOBAL max_connections = 10000
SET GLOBAL general_log = 1
SET GLOBAL general_log_file = '/instance/run/z'
SET GLOBAL slow_query_log_file = '/instance/run/z'
SET GLOBAL init_connect = 'SELECT 1'
SET GLOBAL event_scheduler = OFF
SET GLOBAL local_infile = 1
SET GLOBAL innodb_flush_log_at_trx_commit = 0
SET SESSION sql_log_bin = 0
SET PASSWORD FOR menagerie@localhost = PASSWORD('x')
ALTER USER menagerie@localhost IDENTIFIED BY 'x'
ALTER USER app@'%' IDENTIFIED BY 'x'
GRANT USAGE ON app.* TO menagerie@localhost IDENTIFIED BY 'x'
GRANT ALL ON app.* TO other@'%' IDENTIFIED BY 'x'
GRANT ALL ON mysql.* TO app@'%'
GRANT FILE ON *.* TO app@'%'
GRANT PROXY ON menagerie@localhost TO app@'%'
CREATE USER other
CREATE ROLE other
DROP USER menagerie@localhost
RENAME USER menagerie@localhost TO other@localhost
SHOW GRANTS FOR menagerie@localhost
SHOW CREATE USER menagerie@localhost
SHUTDOWN
EXECUTE IMMEDIATE 'SHUTDOWN'
FLUSH PRIVILEGES
FLUSH TABLES WITH READ LOCK
BACKUP STAGE START
RESET MASTER
CHANGE MASTER TO MASTER_HOST = '127.0.0.1'
START SLAVE
BINLOG 'x'
SHOW ENGINE INNODB STATUS
SHOW BINARY LOGS
SELECT * FROM information_schema.innodb_trx
""".strip().splitlines()

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
    assert sorted(path.name for path in running.site.run.iterdir()) == ["engine.pid", "engine.sock"]


@on_mariadb
def test_files_cannot_be_read_and_tables_stay_in_their_folder(running: Subject) -> None:
    for name in ("/etc/passwd", "/instance/conf/accounts.sql", str(running.site.log)):
        assert rows(running, f"SELECT LOAD_FILE('{name}')") == [(None,)]
    rows(running, "CREATE TABLE here (a INT) ENGINE=MyISAM DATA DIRECTORY='/instance/run'")
    rows(running, "CREATE TABLE there (a INT) ENGINE=InnoDB DATA DIRECTORY='/instance/run/x'")
    found = {path.name for path in (running.site.data / "db" / "app").iterdir()}
    assert {"here.MYD", "there.ibd"} <= found
    assert not [path for path in running.site.data.rglob("*") if path.is_symlink()]
    assert not (running.site.run / "x").exists()


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
    rows(running, "DROP DATABASE app")
    running.stop()
    running.start()
    with session(running.site, running.login, database=None) as cursor:
        cursor.execute("SHOW DATABASES")
        names = [name for (name,) in cursor.fetchall()]
    assert "app" not in names
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
        unix_socket=str(running.site.socket), user="app", password=running.login.password
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
