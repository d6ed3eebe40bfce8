"""Rotation where each role has one password: a login a generation, and one owner of everything."""

import json

import psycopg
import pytest

from cell.engines.driver import Login
from cell.engines.postgres import scram
from contract_tests.engines.conftest import Subject
from contract_tests.engines.postgres_sessions import (
    ask,
    every_version_lent,
    newest_lent,
    session,
    superuser,
    value,
)

LOGINS = "SELECT rolname FROM pg_roles WHERE rolcanlogin AND rolname ~ '^app' ORDER BY 1"


@pytest.mark.nightly
@every_version_lent
def test_whatever_login_makes_it_the_owner_has_it(lent: Subject) -> None:
    ask(lent, "CREATE TABLE of_first (n int)")
    new = lent.new_login()
    assert new.username == "app_2"
    lent.accept(new, lent.login)
    with session(lent, new) as connection:
        assert connection.execute("SELECT session_user, current_user").fetchone() == (
            "app_2",
            "app",
        )
        connection.execute("CREATE TABLE of_second (n int)")
        connection.execute("ALTER TABLE of_first ADD COLUMN m int")
        connection.execute("CREATE DATABASE more")
    ask(lent, "DROP TABLE of_second")
    assert value(lent, "SELECT tableowner FROM pg_tables WHERE tablename = 'of_first'") == "app"


@every_version_lent
def test_a_login_that_ended_leaves_its_sessions_and_itself(lent: Subject) -> None:
    second = lent.new_login()
    lent.accept(second, lent.login)
    third = lent.new_login()
    with session(lent, second) as connection:
        # Stepped out of its role, so that this is the login's own.
        connection.execute("GRANT CREATE ON SCHEMA public TO app_2")
        connection.execute("SET ROLE NONE")
        connection.execute("CREATE TABLE strayed (n int)")
        connection.execute("RESET ROLE")
        connection.execute("REVOKE CREATE ON SCHEMA public FROM app_2")
        lent.accept(third)
        with pytest.raises(psycopg.OperationalError):
            connection.execute("SELECT 1")
    assert not lent.works(lent.login)
    assert not lent.works(second)
    assert ask(lent, LOGINS, third) == [("app_0",), ("app_3",)]
    assert ask(lent, "SELECT 1 FROM pg_roles WHERE rolname = 'app_2'", third) == []
    owner = value(lent, "SELECT tableowner FROM pg_tables WHERE tablename = 'strayed'", third)
    assert owner == "app"


@pytest.mark.nightly
@every_version_lent
def test_an_open_transaction_keeps_no_login_alive(lent: Subject) -> None:
    """As of an intruder who holds what a rotation changes, in any way an owner can."""
    second = lent.new_login()
    lent.accept(second, lent.login)
    former = session(lent)
    former.execute("BEGIN")
    former.execute("ALTER ROLE app PASSWORD 'mine'")
    third = lent.new_login()
    lent.accept(third, second, lent.login)
    with session(lent, second) as stepped:
        stepped.execute("GRANT CREATE ON SCHEMA public TO app_2")
        stepped.execute("SET ROLE NONE")
        stepped.execute("CREATE TABLE strayed (n int)")
        stepped.execute("GRANT SELECT ON strayed TO app")
    reading = session(lent, third)
    reading.execute("BEGIN")
    reading.execute("SELECT FROM strayed")
    lent.accept(third)
    assert not lent.works(lent.login)
    assert not lent.works(second)
    assert lent.works(third)
    former.close()
    reading.close()


@pytest.mark.nightly
@newest_lent
def test_a_login_that_rights_were_given_stays_without_a_way_in(lent: Subject) -> None:
    second, third = lent.new_login(), lent.new_login()
    lent.accept(second)
    with session(lent, second) as connection:
        connection.execute("CREATE TABLE t (n int)")
        connection.execute("GRANT SELECT ON t TO app_2")
    lent.accept(third)
    assert not lent.works(second)
    found = ask(lent, "SELECT rolcanlogin FROM pg_roles WHERE rolname = 'app_2'", third)
    assert found == [(False,)]


# Slow for what it adds by day.
@pytest.mark.nightly
@every_version_lent
def test_what_is_told_a_stopped_engine_holds_from_its_first_login_on(lent: Subject) -> None:
    old, new = lent.login, lent.new_login()
    lent.stop()
    lent.accept(new)
    lent.login = new
    lent.start()
    assert not lent.works(old)
    # The same again changes nothing, and none of it is a password.
    written = (lent.site.directory / "logins.json").read_bytes()
    lent.accept(new)
    assert (lent.site.directory / "logins.json").read_bytes() == written
    assert new.password not in written.decode()
    assert list(json.loads(written)) == [new.username, "app_0"]


@pytest.mark.nightly
@newest_lent
def test_what_an_owner_does_to_his_login_is_undone_by_the_next_start(lent: Subject) -> None:
    with session(lent) as connection:
        connection.execute("ALTER ROLE app SET statement_timeout = '1ms'")
        connection.execute("ALTER ROLE app SET default_transaction_read_only = on")
        connection.execute("ALTER ROLE app SET local_preload_libraries = 'nothing'")
        connection.execute("ALTER DATABASE app CONNECTION LIMIT 0")
        connection.execute("ALTER ROLE app PASSWORD 'his own'")
    assert not lent.works(lent.login)
    lent.stop()
    lent.start()
    assert lent.works(lent.login)


@pytest.mark.nightly
@newest_lent
def test_roles_of_the_owners_are_not_taken_for_logins(lent: Subject) -> None:
    own = Login("app_9", "a long one of its own")
    ask(lent, f"CREATE ROLE app_9 LOGIN PASSWORD '{own.password}'")
    new = lent.new_login()
    lent.accept(new)
    with session(lent, own, "postgres") as connection:
        connection.execute("SELECT 1")
    assert lent.works(superuser(lent))


@every_version_lent
def test_verifiers_are_those_the_server_makes(lent: Subject) -> None:
    with session(lent, superuser(lent), "postgres") as connection:
        connection.execute("CREATE ROLE someone PASSWORD 'pencil'")
        found = connection.execute("SELECT rolpassword FROM pg_authid WHERE rolname = 'someone'")
        row = found.fetchone()
    assert row is not None
    kept = str(row[0])
    assert scram.fits("pencil", kept)
    assert not scram.fits("pen", kept)
    assert not scram.fits("pencil", "nonsense")
