"""Logins that end, whatever whoever held them does to stay, or leaves behind."""

import contextlib
import os
import signal
import threading
import time

import psycopg
import pytest

from cell.engines.driver import Login
from contract_tests.attacks.statements import sequences
from contract_tests.engines.conftest import Subject
from contract_tests.engines.postgres_sessions import (
    Connection,
    ask,
    every_version_lent,
    newest,
    newest_lent,
    session,
    superuser,
    value,
)

# More than a server has locks for at once.
MANY = """
DO $$ BEGIN
    FOR i IN 1..14000 LOOP
        EXECUTE format('CREATE TABLE strayed.t%s ()', i);
        IF i % 1000 = 0 THEN COMMIT; END IF;
    END LOOP;
END $$
"""
OWNED = """
SELECT count(*) FROM pg_shdepend WHERE deptype = 'o' AND refobjid = to_regrole('app_2')
"""
# Of which none looks whether it is to end.
ENDLESS = "SELECT strpos(repeat('a', 50000000), 'b' || repeat('a', 1000000))"
IN_NO_ENCODING = "TEMPLATE template0 ENCODING 'SQL_ASCII' LOCALE 'C'"


def second(running: Subject) -> Login:
    """A credential that works, beside the first."""
    made = running.new_login()
    running.accept(made, running.login)
    with session(running, made) as connection:
        connection.execute("CREATE SCHEMA strayed")
        connection.execute("GRANT ALL ON SCHEMA strayed TO app_2")
    return made


def stepped_out(running: Subject, login: Login, database: str = "app") -> Connection:
    """What it makes is the login's own, and not the owner's."""
    connection = session(running, login, database)
    connection.execute("SET ROLE NONE")
    return connection


def stray_in(running: Subject, login: Login, database: str) -> None:
    with session(running, login, database) as connection:
        connection.execute("GRANT ALL ON SCHEMA public TO app_2")
    with stepped_out(running, login, database) as connection:
        connection.execute("CREATE TABLE public.t (n int)")


@pytest.mark.nightly
@newest_lent
def test_no_attack_of_the_corpus_outlives_a_rotation(lent: Subject) -> None:
    attacks = sequences("postgres", "rotation")
    assert attacks
    for steps in attacks:
        former = lent.login
        with session(lent) as connection:
            for step in steps:
                connection.execute(step.encode())
        lent.login = lent.new_login()
        lent.accept(lent.login)
        assert lent.works(lent.login), steps
        assert not lent.works(former), steps


@newest
@pytest.mark.nightly
def test_any_number_of_objects_is_handed_over(running: Subject) -> None:
    former = second(running)
    with stepped_out(running, former) as connection:
        connection.execute(MANY)
        connection.execute("CREATE TABLE strayed.counted (n serial)")
        connection.execute("CREATE VIEW strayed.shown AS SELECT n FROM strayed.counted")
        connection.execute("CREATE FUNCTION strayed.f() RETURNS int LANGUAGE sql AS 'SELECT 1'")
        connection.execute("CREATE TYPE strayed.mood AS ENUM ('well')")
        connection.execute("SELECT lo_create(0)")
    running.accept(third := running.new_login())
    assert not running.works(former)
    assert running.works(third)
    assert value(running, OWNED, third) == 0


@pytest.mark.nightly
@every_version_lent
def test_a_database_that_nobody_reads_keeps_no_login_alive(lent: Subject) -> None:
    """In an encoding that we have no codec for, and one that is dropped half."""
    former = second(lent)
    ask(lent, f"CREATE DATABASE half {IN_NO_ENCODING}")
    with stepped_out(lent, former) as connection:
        connection.execute("CREATE TABLE strayed.t (n int)")
    stray_in(lent, former, "half")
    with session(lent, former, "postgres") as connection:
        connection.execute("ALTER DATABASE app SET client_encoding = 'EUC_TW'")
    with session(lent, superuser(lent), "postgres") as connection:
        connection.execute("UPDATE pg_database SET datconnlimit = -2 WHERE datname = 'half'")
    lent.accept(third := lent.new_login())
    assert not lent.works(former)
    with session(lent, third, "postgres") as connection:
        connection.execute("ALTER DATABASE app RESET client_encoding")
    owner = "SELECT pg_get_userbyid(relowner) FROM pg_class WHERE oid = 'strayed.t'::regclass"
    assert value(lent, owner, third) == "app"
    lent.login = third
    lent.stop()
    lent.start()


@pytest.mark.nightly
@newest_lent
def test_a_database_with_a_name_of_any_bytes_keeps_nobody_out(lent: Subject) -> None:
    """One in no encoding gives another a name that is no text."""
    former = second(lent)
    for name in ("bytes", "named"):
        ask(lent, f"CREATE DATABASE {name} {IN_NO_ENCODING}")
    stray_in(lent, former, "named")
    with session(lent, database="bytes") as connection:
        connection.execute(b'ALTER DATABASE named RENAME TO "\xff"')
        connection.execute(b'ALTER DATABASE "\xff" SET idle_session_timeout = 1')
    lent.accept(third := lent.new_login())
    assert lent.works(third)
    assert not lent.works(former)
    assert ask(lent, "SELECT FROM pg_db_role_setting WHERE setrole = 0", third) == []


# By day the corpus of what outlives no rotation.
@pytest.mark.nightly
@every_version_lent
def test_a_session_that_begins_slowly_ends_with_its_login(lent: Subject) -> None:
    """It has proved who it is, and is not shown yet."""
    former = second(lent)
    found: list[object] = []

    def log_in() -> None:
        try:
            with psycopg.connect(
                host=str(lent.site.run),
                user=former.username,
                password=former.password,
                dbname="app",
                options="-c post_auth_delay=4",
            ) as connection:
                found.append(connection.execute("SELECT 1").fetchone())
        except psycopg.Error as error:
            found.append(error)

    thread = threading.Thread(target=log_in)
    thread.start()
    time.sleep(1)
    lent.accept(third := lent.new_login())
    thread.join()
    assert isinstance(found[0], psycopg.OperationalError)
    assert lent.works(third)


@newest
@pytest.mark.nightly
def test_what_cannot_be_interrupted_keeps_no_login_alive(running: Subject) -> None:
    former = second(running)
    with session(running, former) as holding:
        holding.execute("BEGIN")
        holding.execute("ALTER ROLE app SET work_mem = '5MB'")
        running_on = (psycopg.Error, holding.execute, ENDLESS)
        busy = threading.Thread(target=pytest.raises, args=running_on)
        busy.start()
        began = time.monotonic()
        running.accept(third := running.new_login())
        assert time.monotonic() - began < 15
        busy.join()
    assert running.process is not None
    assert not running.process.alive
    running.login = third
    running.start()
    assert not running.works(former)
    assert running.works(third)


@pytest.mark.nightly
@newest_lent
def test_a_login_also_ends_while_the_server_recovers(lent: Subject) -> None:
    """Who holds it can crash a session of his, and the server goes on without a new start."""
    former, lent.login = lent.login, lent.new_login()
    with contextlib.suppress(psycopg.OperationalError), session(lent, former) as crashing:
        os.kill(lent.outside(crashing.info.backend_pid), signal.SIGSEGV)
        lent.accept(lent.login)
    assert "was terminated by signal" in lent.site.log.read_text()
    with session(lent):
        pass
    with pytest.raises(psycopg.OperationalError, match=r"not permitted to log in|password"):
        session(lent, former)
