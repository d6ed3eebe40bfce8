"""Roles of PostgreSQL whose maker is gone: from the next rotation on the owner rules them again."""

import psycopg
import pytest

from cell.engines.driver import Login
from cell.engines.postgres import roles
from contract_tests.engines.conftest import Subject
from contract_tests.engines.postgres_sessions import (
    NEWEST,
    ask,
    newest,
    newest_lent,
    session,
    value,
)

since_16 = pytest.mark.parametrize(
    "lent", [NEWEST, pytest.param(("postgres", "16"), marks=pytest.mark.nightly)], indirect=True
)
INTRUDER = Login("mallory", "m")
LEAVE_BEHIND = (
    "CREATE ROLE maker CREATEROLE CREATEDB",
    "SET ROLE maker",
    "CREATE ROLE mallory LOGIN PASSWORD 'm' CREATEROLE CREATEDB",
    "CREATE ROLE quiet",
    "RESET ROLE",
    "DROP ROLE maker",
)


def leave_behind(subject: Subject) -> None:
    with session(subject) as connection:
        for statement in LEAVE_BEHIND:
            connection.execute(statement.encode())
        with pytest.raises(psycopg.errors.InsufficientPrivilege):
            connection.execute("ALTER ROLE mallory NOLOGIN")


@pytest.mark.nightly
@since_16
def test_the_owner_ends_what_a_former_holder_left(lent: Subject) -> None:
    leave_behind(lent)
    inside = session(lent, INTRUDER, "postgres")
    inside.execute("CREATE DATABASE his")
    new = lent.new_login()
    lent.accept(new)
    with pytest.raises(psycopg.errors.InsufficientPrivilege):
        inside.execute("CREATE ROLE another LOGIN PASSWORD 'h'")
    with pytest.raises(psycopg.errors.InsufficientPrivilege):
        inside.execute("CREATE DATABASE more")
    for statement in (
        "ALTER ROLE mallory NOLOGIN",
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE usename = 'mallory'",
        "DROP DATABASE his WITH (FORCE)",
        "DROP ROLE mallory",
        "DROP ROLE quiet",
    ):
        ask(lent, statement, new)
    with pytest.raises(psycopg.OperationalError):
        inside.execute("SELECT 1")


@pytest.mark.nightly
@newest_lent
def test_roles_that_the_owner_rules_stay_as_they_are(lent: Subject) -> None:
    """Also those that roles of his have made, however far down."""
    with session(lent) as connection:
        for statement in (
            "CREATE ROLE first CREATEROLE",
            "SET ROLE first",
            "CREATE ROLE second CREATEROLE",
            "SET ROLE second",
            "CREATE ROLE third LOGIN",
            "RESET ROLE",
        ):
            connection.execute(statement.encode())
    before = ask(lent, "SELECT roleid, member, grantor FROM pg_auth_members ORDER BY 1, 2, 3")
    new = lent.new_login()
    lent.accept(new, lent.login)
    kept = set(ask(lent, "SELECT roleid, member, grantor FROM pg_auth_members", new))
    assert set(before) <= kept
    made = "SELECT count(*) FROM pg_roles WHERE rolname IN ('first', 'second') AND rolcreaterole"
    assert value(lent, made, new) == 2


@pytest.mark.nightly
@newest_lent
def test_any_number_of_them_delays_no_rotation_for_long(
    lent: Subject, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A few in one go, those that log in first, and none of the others makes more."""
    monkeypatch.setattr(roles, "ORPHANS_AT_ONCE", 1)
    leave_behind(lent)
    second, third = lent.new_login(), lent.new_login()
    lent.accept(second)
    ask(lent, "DROP ROLE mallory", second)
    with pytest.raises(psycopg.errors.InsufficientPrivilege):
        ask(lent, "DROP ROLE quiet", second)
    lent.accept(third)
    ask(lent, "DROP ROLE quiet", third)


@pytest.mark.nightly
@newest_lent
def test_a_name_of_any_bytes_keeps_no_credential_from_changing(lent: Subject) -> None:
    plain = "CREATE DATABASE plain ENCODING 'SQL_ASCII' LOCALE 'C' TEMPLATE template0"
    ask(lent, plain)
    with session(lent, database="plain") as connection:
        for statement in LEAVE_BEHIND[:2]:
            connection.execute(statement.encode())
        connection.execute("SET client_encoding TO 'SQL_ASCII'")
        connection.execute(b'CREATE ROLE "\xff\xfe"')
        connection.execute("RESET ROLE")
        connection.execute("DROP ROLE maker")
    new = lent.new_login()
    lent.accept(new)
    with session(lent, new, "plain") as connection:
        connection.execute("SET client_encoding TO 'SQL_ASCII'")
        connection.execute(b'DROP ROLE "\xff\xfe"')


@pytest.mark.nightly
@since_16
def test_the_database_is_the_owners_whoever_made_it(lent: Subject) -> None:
    leave_behind(lent)
    with session(lent, database="postgres") as former:
        former.execute("DROP DATABASE app")
    with session(lent, INTRUDER, "postgres") as inside:
        inside.execute("CREATE DATABASE app")
        inside.execute("ALTER DATABASE app CONNECTION LIMIT 0")
    new = lent.new_login()
    lent.accept(new)
    ask(lent, "CREATE TABLE public.mine (n int)", new)
    ask(lent, "DROP ROLE mallory", new)


@newest_lent
def test_whatever_keeps_them_from_being_given_back_credentials_change(
    lent: Subject, monkeypatch: pytest.MonkeyPatch
) -> None:
    leave_behind(lent)
    slow = "SELECT pg_sleep(60)"
    monkeypatch.setattr(roles, "ORPHANS_WITHIN_MS", 10)
    monkeypatch.setattr(roles, "WEAKEN_ORPHANS", slow)
    former, lent.login = lent.login, lent.new_login()
    lent.accept(lent.login)
    assert lent.works(lent.login)
    assert not lent.works(former)


@pytest.mark.nightly
@newest
def test_one_among_many_roles_is_found(running: Subject) -> None:
    """Each is not compared with each, which would take longer than there is."""
    many = (
        "DO $$ BEGIN FOR n IN 1..1000 LOOP EXECUTE 'CREATE ROLE many_{0}_' || n; END LOOP; END $$"
    )
    with session(running) as former:
        for number in range(20):
            former.execute(f"CREATE ROLE maker_{number} CREATEROLE".encode())
            former.execute(f"SET ROLE maker_{number}".encode())
            former.execute(many.format(number).encode())
            former.execute("RESET ROLE")
    leave_behind(running)
    new = running.new_login()
    running.accept(new)
    ask(running, "DROP ROLE mallory", new)
