"""Databases that are searched for what a superuser left: closed ones, and those with odd names."""

import psycopg
import pytest

from cell.engines.driver import Login
from cell.engines.postgres import connections, leftovers, scram
from contract_tests.engines.conftest import Subject
from contract_tests.engines.postgres_sessions import ask, newest_lent, session, superuser, value
from contract_tests.engines.test_postgres_leftovers import BODY, rotate


# Slow for what it adds by day.
@pytest.mark.nightly
@newest_lent
def test_databases_whose_name_is_no_text_are_searched(lent: Subject) -> None:
    ask(lent, "CREATE DATABASE raw TEMPLATE template0 ENCODING 'SQL_ASCII' LOCALE 'C'")
    ask(lent, "CREATE DATABASE odd")
    # Whoever knew the new name could keep it from being given.
    oid = value(lent, "SELECT oid FROM pg_database WHERE datname = 'odd'")
    ask(lent, f"CREATE DATABASE database_{oid}")
    with session(lent, superuser(lent), "odd") as connection:
        connection.execute(f"CREATE FUNCTION public.door() RETURNS void SECURITY DEFINER {BODY}")
    with session(lent, database="raw") as connection:
        connection.execute("SET client_encoding = 'SQL_ASCII'")
        connection.execute(b'ALTER DATABASE odd RENAME TO "odd\xff"')
    rotate(lent)
    named = value(lent, f"SELECT datname FROM pg_database WHERE oid = {oid}")
    assert named.startswith(f"database_{oid}_")
    with (
        session(lent, database=named) as connection,
        pytest.raises(psycopg.errors.InsufficientPrivilege),
    ):
        connection.execute("SELECT public.door()")


@newest_lent
def test_a_template_that_a_crash_left_open_is_closed(lent: Subject) -> None:
    """No upgrade takes a cluster in which it is open, and no owner can close it."""
    with session(lent, superuser(lent)) as connection:
        connection.execute("UPDATE pg_database SET datconnlimit = 0 WHERE datname = 'template0'")
        connection.execute("ALTER DATABASE template0 ALLOW_CONNECTIONS true")
    rotate(lent)
    asked = "SELECT (datallowconn, datconnlimit)::text FROM pg_database WHERE datname = 'template0'"
    assert value(lent, asked) == "(f,-1)"


@newest_lent
def test_nobody_gets_into_what_is_opened_to_be_searched(lent: Subject) -> None:
    ask(lent, "CREATE DATABASE shut")
    ask(lent, "ALTER DATABASE shut ALLOW_CONNECTIONS false CONNECTION LIMIT 7")
    with session(lent, superuser(lent)) as connection:
        shut = connection.execute("SELECT oid FROM pg_database WHERE datname = 'shut'").fetchone()
        opened = connection.execute(leftovers.OPEN.encode(), [list(shut or ())]).fetchall()
        with pytest.raises(psycopg.OperationalError, match="too many connections"):
            session(lent, database="shut")
        with session(lent, superuser(lent), "shut"):
            pass
        oids, limits = map(list, zip(*opened, strict=True))
        connection.execute(leftovers.CLOSE.encode(), [oids, limits])
    asked = "SELECT (datallowconn, datconnlimit)::text FROM pg_database WHERE datname = 'shut'"
    assert value(lent, asked) == "(f,7)"


@newest_lent
def test_a_search_works_out_its_password_once(lent: Subject) -> None:
    ours = superuser(lent)
    guessed = Login(ours.username, "not the password")

    async def log_in() -> object:
        async with connections.administration(lent.site.run, ours) as connection:
            keys = await connections.keys(connection, ours)
        assert keys is not None
        opened = connections.administration(lent.site.run, guessed, "app", keys=keys)
        async with opened as connection:
            return await (await connection.execute("SELECT SESSION_USER::text")).fetchone()

    assert lent.run(log_in()) == ("menagerie",)
    # Of one that is not the cell's it would take as long as whoever made it likes.
    assert scram.keys("x", scram.verifier("x", iterations=5000)) is None
