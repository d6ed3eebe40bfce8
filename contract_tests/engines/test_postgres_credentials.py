"""Rotation where each role has one password: a login a generation, and one owner of everything."""

import json

import psycopg
import pytest

from cell.engines.driver import Login
from cell.engines.postgres import scram
from contract_tests.engines.conftest import Subject
from contract_tests.engines.postgres_sessions import (
    ask,
    every_version,
    newest,
    session,
    superuser,
    value,
)

LOGINS = "SELECT rolname FROM pg_roles WHERE rolcanlogin AND rolname ~ '^app' ORDER BY 1"


@every_version
def test_whatever_login_makes_it_the_owner_has_it(running: Subject) -> None:
    ask(running, "CREATE TABLE of_first (n int)")
    new = running.new_login()
    assert new.username == "app_2"
    running.accept(new, running.login)
    with session(running, new) as connection:
        assert connection.execute("SELECT session_user, current_user").fetchone() == (
            "app_2",
            "app",
        )
        connection.execute("CREATE TABLE of_second (n int)")
        connection.execute("ALTER TABLE of_first ADD COLUMN m int")
        connection.execute("CREATE DATABASE more")
    ask(running, "DROP TABLE of_second")
    assert value(running, "SELECT tableowner FROM pg_tables WHERE tablename = 'of_first'") == "app"


@every_version
def test_a_login_that_ended_leaves_its_sessions_and_itself(running: Subject) -> None:
    second = running.new_login()
    running.accept(second, running.login)
    third = running.new_login()
    with session(running, second) as connection:
        # Stepped out of its role, so that this is the login's own.
        connection.execute("GRANT CREATE ON SCHEMA public TO app_2")
        connection.execute("SET ROLE NONE")
        connection.execute("CREATE TABLE strayed (n int)")
        connection.execute("RESET ROLE")
        connection.execute("REVOKE CREATE ON SCHEMA public FROM app_2")
        running.accept(third)
        with pytest.raises(psycopg.OperationalError):
            connection.execute("SELECT 1")
    assert not running.works(running.login)
    assert not running.works(second)
    assert ask(running, LOGINS, third) == [("app_3",)]
    assert ask(running, "SELECT 1 FROM pg_roles WHERE rolname = 'app_2'", third) == []
    owner = value(running, "SELECT tableowner FROM pg_tables WHERE tablename = 'strayed'", third)
    assert owner == "app"


@every_version
def test_an_open_transaction_keeps_no_login_alive(running: Subject) -> None:
    """As of an intruder who holds what a rotation changes, in any way an owner can."""
    second = running.new_login()
    running.accept(second, running.login)
    former = session(running)
    former.execute("BEGIN")
    former.execute("ALTER ROLE app PASSWORD 'mine'")
    third = running.new_login()
    running.accept(third, second, running.login)
    with session(running, second) as stepped:
        stepped.execute("GRANT CREATE ON SCHEMA public TO app_2")
        stepped.execute("SET ROLE NONE")
        stepped.execute("CREATE TABLE strayed (n int)")
        stepped.execute("GRANT SELECT ON strayed TO app")
    reading = session(running, third)
    reading.execute("BEGIN")
    reading.execute("SELECT FROM strayed")
    running.accept(third)
    assert not running.works(running.login)
    assert not running.works(second)
    assert running.works(third)
    former.close()
    reading.close()


@newest
def test_a_login_that_rights_were_given_stays_without_a_way_in(running: Subject) -> None:
    second, third = running.new_login(), running.new_login()
    running.accept(second)
    with session(running, second) as connection:
        connection.execute("CREATE TABLE t (n int)")
        connection.execute("GRANT SELECT ON t TO app_2")
    running.accept(third)
    assert not running.works(second)
    found = ask(running, "SELECT rolcanlogin FROM pg_roles WHERE rolname = 'app_2'", third)
    assert found == [(False,)]


@every_version
def test_what_is_told_a_stopped_engine_holds_from_its_first_login_on(running: Subject) -> None:
    old, new = running.login, running.new_login()
    running.stop()
    running.accept(new)
    running.login = new
    running.start()
    assert not running.works(old)
    # The same again changes nothing, and none of it is a password.
    written = (running.site.directory / "logins.json").read_bytes()
    running.accept(new)
    assert (running.site.directory / "logins.json").read_bytes() == written
    assert new.password not in written.decode()
    assert list(json.loads(written)) == [new.username]


@newest
def test_what_an_owner_does_to_his_login_is_undone_by_the_next_start(running: Subject) -> None:
    with session(running) as connection:
        connection.execute("ALTER ROLE app SET statement_timeout = '1ms'")
        connection.execute("ALTER ROLE app SET default_transaction_read_only = on")
        connection.execute("ALTER ROLE app SET local_preload_libraries = 'nothing'")
        connection.execute("ALTER DATABASE app CONNECTION LIMIT 0")
        connection.execute("ALTER ROLE app PASSWORD 'his own'")
    assert not running.works(running.login)
    running.stop()
    running.start()
    assert running.works(running.login)


@newest
def test_roles_of_the_owners_are_not_taken_for_logins(running: Subject) -> None:
    own = Login("app_9", "a long one of its own")
    ask(running, f"CREATE ROLE app_9 LOGIN PASSWORD '{own.password}'")
    new = running.new_login()
    running.accept(new)
    with session(running, own, "postgres") as connection:
        connection.execute("SELECT 1")
    assert running.works(superuser(running))


@every_version
def test_verifiers_are_those_the_server_makes(running: Subject) -> None:
    with session(running, superuser(running), "postgres") as connection:
        connection.execute("CREATE ROLE someone PASSWORD 'pencil'")
        found = connection.execute("SELECT rolpassword FROM pg_authid WHERE rolname = 'someone'")
        row = found.fetchone()
    assert row is not None
    kept = str(row[0])
    assert scram.fits("pencil", kept)
    assert not scram.fits("pen", kept)
    assert not scram.fits("pencil", "nonsense")
