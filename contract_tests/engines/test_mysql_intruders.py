"""Whoever once was administrator of a MariaDB server is not after a rotation, nor after a start."""

import pymysql
import pytest

from cell.engines.driver import Login
from cell.engines.mysql.accounts import native_hash
from contract_tests.cell.rig import until
from contract_tests.engines.conftest import Subject
from contract_tests.engines.mysql_sessions import administrator, on_mariadb, rows, session

PASSWORD = "of the intruder's own"
HASH = native_hash(PASSWORD)
# Said by an administrator; `{}` is its name.
PLANTED = f"""
SET GLOBAL strict_password_validation = OFF
CREATE USER intruder@'%' IDENTIFIED BY PASSWORD '{HASH}'
GRANT ALL PRIVILEGES ON *.* TO intruder@'%' WITH GRANT OPTION
CREATE USER app@localhost IDENTIFIED BY PASSWORD '{HASH}'
GRANT ALL PRIVILEGES ON *.* TO app@localhost
CREATE USER ''@localhost IDENTIFIED BY PASSWORD '{HASH}'
DROP TABLE mysql.password_reuse_check_history
CREATE ROLE keeper
GRANT ALL PRIVILEGES ON *.* TO keeper
GRANT keeper TO app@'%'
SET DEFAULT ROLE keeper FOR app@'%'
GRANT ALL PRIVILEGES ON *.* TO app@'%' WITH GRANT OPTION
GRANT ALL PRIVILEGES ON mysql.* TO app@'%'
GRANT ALL PRIVILEGES ON `#mysql50#mysql`.* TO app@'%'
GRANT SELECT ON mysql.global_priv TO app@'%'
GRANT PROXY ON {{}}@localhost TO app@'%'
INSERT INTO mysql.plugin VALUES ('federatedx', 'ha_federatedx.so')
INSERT INTO mysql.servers (Server_name, Wrapper) VALUES ('s', 'mysql')
CREATE DEFINER={{}}@localhost PROCEDURE app.planted() SELECT * FROM mysql.global_priv
CREATE DEFINER={{}}@localhost VIEW app.planted AS SELECT * FROM mysql.global_priv
CREATE DEFINER={{}}@localhost EVENT app.planted ON SCHEDULE EVERY 1 SECOND DO CREATE USER z
CREATE DEFINER={{}}@localhost PROCEDURE mysql.planted() SELECT * FROM mysql.db
CHANGE MASTER 'x' TO MASTER_HOST='127.0.0.1', MASTER_USER='x'
""".strip().splitlines()
KEPT = ("mysql.plugin", "mysql.servers", "mysql.roles_mapping", "mysql.proxies_priv", "mysql.func")
DENIED = (
    "SELECT * FROM mysql.global_priv",
    "SELECT * FROM `#mysql50#mysql`.global_priv",
    "CREATE USER other",
    "SET ROLE keeper",
    "CALL mysql.planted()",
    "CALL app.planted()",
    "SELECT * FROM app.planted",
)


def plant(subject: Subject) -> list[object]:
    """Answers what the tenant might do before."""
    before = grants(subject)
    ours = administrator(subject)
    with session(subject.site, ours) as cursor:
        for statement in PLANTED:
            cursor.execute(statement.replace("{}", ours.username))
    assert subject.works(Login("intruder", PASSWORD))
    return before


def grants(subject: Subject, login: Login | None = None) -> list[object]:
    found = rows(subject, "SHOW GRANTS FOR CURRENT_USER", login)
    # The first tells a hash.
    return [row[0].partition(" IDENTIFIED")[0] for row in found]


def nothing_is_left(subject: Subject) -> None:
    for username in ("intruder", "app", "", "keeper", "root", "mariadb.sys"):
        assert not subject.works(Login(username, PASSWORD))
    for statement in DENIED:
        with session(subject.site, subject.login) as cursor, pytest.raises(pymysql.err.MySQLError):
            cursor.execute(statement)
    ours = administrator(subject)
    with pytest.raises(pymysql.err.MySQLError):
        rows(subject, f"SET PASSWORD = '{HASH}'")
    with pytest.raises(pymysql.err.MySQLError):
        rows(subject, f'SET PASSWORD = PASSWORD("{PASSWORD}")')
    found = rows(subject, "SELECT User FROM mysql.global_priv", ours)
    assert {name for (name,) in found} == {"app", ours.username}
    for table in KEPT:
        assert rows(subject, f"SELECT COUNT(*) FROM {table}", ours) == [(0,)], table


@on_mariadb
def test_a_rotation_leaves_an_intruder_nothing(running: Subject) -> None:
    before = plant(running)
    intruder = pymysql.connect(
        unix_socket=str(running.site.socket), user="intruder", password=PASSWORD
    )
    older, running.login = running.login, running.new_login()
    running.accept(running.login)
    assert not running.works(older)
    assert grants(running) == before
    with pytest.raises(pymysql.err.OperationalError):
        intruder.query("SELECT 1")
    # Events and routines run as the tenant now.
    rows(running, "DROP EVENT app.planted")
    rows(running, "DROP VIEW app.planted")
    nothing_is_left(running)


@on_mariadb
def test_a_start_leaves_an_intruder_nothing(running: Subject) -> None:
    before = plant(running)
    former = administrator(running)
    running.stop()
    running.accept(running.login)
    running.start()
    assert grants(running) == before
    nothing_is_left(running)
    assert administrator(running).username != former.username
    assert not running.works(former)
    ours = administrator(running)
    assert rows(running, "SHOW ALL SLAVES STATUS", ours) == []
    definers = rows(running, "SELECT DEFINER FROM information_schema.EVENTS", ours)
    assert definers == [("app@%",)]


@on_mariadb
def test_a_start_that_cannot_set_the_accounts_lets_nobody_in(running: Subject) -> None:
    """The server works on after an error in its file of statements; it must not by half."""
    rows(running, "DROP TABLE mysql.servers", administrator(running))
    running.stop()
    said = len(running.site.log.read_text())
    running.process = running.run(running.driver.start(running.site, running.spec))
    until(lambda: "ready for connections" in running.site.log.read_text()[said:], "it starts")
    assert not running.works(running.login)
