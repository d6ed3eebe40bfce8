"""Databases that are searched for what a superuser left: closed ones, and those with odd names."""

import psycopg
import pytest

from cell.engines.driver import Login
from cell.engines.postgres import connections, leftovers, scram
from contract_tests.engines.conftest import Subject
from contract_tests.engines.postgres_sessions import ask, newest, session, superuser, value
from contract_tests.engines.test_postgres_leftovers import BODY, rotate


@newest
def test_databases_whose_name_is_no_text_are_searched(running: Subject) -> None:
    ask(running, "CREATE DATABASE raw TEMPLATE template0 ENCODING 'SQL_ASCII' LOCALE 'C'")
    ask(running, "CREATE DATABASE odd")
    # Whoever knew the new name could keep it from being given.
    oid = value(running, "SELECT oid FROM pg_database WHERE datname = 'odd'")
    ask(running, f"CREATE DATABASE database_{oid}")
    with session(running, superuser(running), "odd") as connection:
        connection.execute(f"CREATE FUNCTION public.door() RETURNS void SECURITY DEFINER {BODY}")
    with session(running, database="raw") as connection:
        connection.execute("SET client_encoding = 'SQL_ASCII'")
        connection.execute(b'ALTER DATABASE odd RENAME TO "odd\xff"')
    rotate(running)
    named = value(running, f"SELECT datname FROM pg_database WHERE oid = {oid}")
    assert named.startswith(f"database_{oid}_")
    with (
        session(running, database=named) as connection,
        pytest.raises(psycopg.errors.InsufficientPrivilege),
    ):
        connection.execute("SELECT public.door()")


@newest
def test_a_template_that_a_crash_left_open_is_closed(running: Subject) -> None:
    """No upgrade takes a cluster in which it is open, and no owner can close it."""
    with session(running, superuser(running)) as connection:
        connection.execute("UPDATE pg_database SET datconnlimit = 0 WHERE datname = 'template0'")
        connection.execute("ALTER DATABASE template0 ALLOW_CONNECTIONS true")
    rotate(running)
    asked = "SELECT (datallowconn, datconnlimit)::text FROM pg_database WHERE datname = 'template0'"
    assert value(running, asked) == "(f,-1)"


@newest
def test_nobody_gets_into_what_is_opened_to_be_searched(running: Subject) -> None:
    ask(running, "CREATE DATABASE shut")
    ask(running, "ALTER DATABASE shut ALLOW_CONNECTIONS false CONNECTION LIMIT 7")
    with session(running, superuser(running)) as connection:
        shut = connection.execute("SELECT oid FROM pg_database WHERE datname = 'shut'").fetchone()
        opened = connection.execute(leftovers.OPEN.encode(), [list(shut or ())]).fetchall()
        with pytest.raises(psycopg.OperationalError, match="too many connections"):
            session(running, database="shut")
        with session(running, superuser(running), "shut"):
            pass
        oids, limits = map(list, zip(*opened, strict=True))
        connection.execute(leftovers.CLOSE.encode(), [oids, limits])
    asked = "SELECT (datallowconn, datconnlimit)::text FROM pg_database WHERE datname = 'shut'"
    assert value(running, asked) == "(f,7)"


@newest
def test_a_search_works_out_its_password_once(running: Subject) -> None:
    ours = superuser(running)
    guessed = Login(ours.username, "not the password")

    async def log_in() -> object:
        async with connections.administration(running.site.run, ours) as connection:
            keys = await connections.keys(connection, ours)
        assert keys is not None
        opened = connections.administration(running.site.run, guessed, "app", keys=keys)
        async with opened as connection:
            return await (await connection.execute("SELECT SESSION_USER::text")).fetchone()

    assert running.run(log_in()) == ("menagerie",)
    # Of one that is not the cell's it would take as long as whoever made it likes.
    assert scram.keys("x", scram.verifier("x", iterations=5000)) is None
