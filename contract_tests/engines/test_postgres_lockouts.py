"""What keeps an owner from logging in to his database, and what brings him back."""

import time

import psycopg
import pytest

from cell.engines.driver import Login
from cell.engines.postgres import connections
from contract_tests.engines.conftest import Subject
from contract_tests.engines.postgres_sessions import (
    ask,
    every_version_lent,
    every_version_shared,
    newest_lent,
    session,
    superuser,
    value,
)

# Each is said in `postgres`, and nobody logs in to `app` after it.
LOCKING = (
    "ALTER ROLE app SET local_preload_libraries = 'nothing'",
    "ALTER ROLE app IN DATABASE app SET local_preload_libraries = 'nothing'",
    "ALTER DATABASE app SET local_preload_libraries = 'nothing'",
    "ALTER DATABASE app CONNECTION LIMIT 0",
    "ALTER DATABASE app ALLOW_CONNECTIONS false",
    "REVOKE CONNECT ON DATABASE app FROM app, PUBLIC",
    "ALTER DATABASE app RENAME TO former",
    "DROP DATABASE app",
)
# These let him in, for too short a time to do anything.
ENDING = (
    "ALTER ROLE app SET idle_session_timeout = '1ms'",
    "ALTER DATABASE app SET idle_session_timeout = 2",
    "ALTER DATABASE app SET transaction_timeout = '0.001s'",
    "ALTER ROLE app IN DATABASE app SET transaction_timeout = '1000us'",
)
# An owner has no right to these, not for himself.
REFUSED = (
    "ALTER ROLE app NOLOGIN",
    "ALTER ROLE app CONNECTION LIMIT 0",
    "ALTER ROLE app VALID UNTIL '2000-01-01'",
    "ALTER ROLE app RENAME TO former",
    "ALTER ROLE app SET session_preload_libraries = 'nothing'",
    "ALTER DATABASE app SET session_preload_libraries = 'nothing'",
    "ALTER ROLE ALL SET local_preload_libraries = 'nothing'",
    "ALTER DATABASE postgres CONNECTION LIMIT 0",
    "ALTER DATABASE postgres SET local_preload_libraries = 'nothing'",
    "ALTER DATABASE template1 SET local_preload_libraries = 'nothing'",
    "DROP DATABASE postgres",
    "DROP ROLE app",
)
# His own business, and kept.
KEPT = (
    "ALTER DATABASE app SET idle_session_timeout = '5min'",
    "ALTER DATABASE app SET statement_timeout = '30s'",
    "ALTER DATABASE app SET search_path = 'own'",
    "ALTER DATABASE app CONNECTION LIMIT 7",
    "REVOKE CONNECT ON DATABASE app FROM PUBLIC",
    "ALTER ROLE app SET default_transaction_read_only = on",
)
CREATING = (
    "CREATE TABLE public.t (n int)",
    "CREATE TEMP TABLE t (n int)",
    "CREATE SCHEMA own",
    "CREATE FUNCTION public.now() RETURNS int LANGUAGE sql AS 'SELECT 1'",
    "CREATE FUNCTION pg_catalog.mine() RETURNS int LANGUAGE sql AS 'SELECT 1'",
    "CREATE OPERATOR public.= (FUNCTION = texteq, LEFTARG = text, RIGHTARG = text)",
    "CREATE CAST (text AS regrole) WITH INOUT AS IMPLICIT",
    "CREATE EXTENSION hstore",
    "CREATE PUBLICATION p",
    "CREATE EVENT TRIGGER t ON ddl_command_end EXECUTE FUNCTION pg_catalog.version()",
)


def lets_in(running: Subject, login: Login | None = None) -> bool:
    """As any client that brings no settings of its own."""
    try:
        with session(running, login) as connection:
            time.sleep(0.05)
            return connection.execute("SELECT pg_sleep(0.05)").fetchone() is not None
    except psycopg.Error:
        return False


def say(running: Subject, statement: str) -> None:
    with session(running, database="postgres") as connection:
        connection.execute(statement.encode())


def ending(lent: Subject) -> tuple[str, ...]:
    return ENDING if lent.spec.engine_version not in {"15", "16"} else ENDING[:2]


@pytest.mark.nightly
@newest_lent
def test_an_owner_who_is_locked_out_in_all_ways_at_once_is_let_in_again(lent: Subject) -> None:
    *changes, renaming, dropping = LOCKING
    for statements in ((*ending(lent), *changes), (*ending(lent), *changes, renaming), (dropping,)):
        # They count from the next session on.
        with session(lent, database="postgres") as connection:
            for statement in statements:
                connection.execute(statement.encode())
        assert not lets_in(lent), statements
        if renaming in statements:
            lent.stop()
            lent.start()
        else:
            lent.accept(lent.login)
        assert lets_in(lent), statements


@pytest.mark.nightly
@every_version_lent
def test_an_owner_who_is_locked_out_is_let_in_again(lent: Subject) -> None:
    for number, statement in enumerate((*LOCKING, *ending(lent))):
        say(lent, statement)
        assert not lets_in(lent), statement
        if number % 2:
            lent.stop()
            lent.start()
        else:
            lent.accept(lent.login)
        assert lets_in(lent), statement


# By day all ways of locking an owner out at once.
@pytest.mark.nightly
@newest_lent
def test_a_rotation_lets_in_whom_a_former_holder_locked_out(lent: Subject) -> None:
    """Whoever had the credential leaves all of it behind at once."""
    second = lent.new_login()
    lent.accept(second, lent.login)
    with session(lent, second, "postgres") as connection:
        connection.execute("SET ROLE NONE")
        connection.execute("ALTER ROLE app_2 SET local_preload_libraries = 'nothing'")
    assert not lets_in(lent, second)
    lent.accept(second)
    assert lets_in(lent, second)
    with session(lent, second, "postgres") as connection:
        for statement in (*ENDING[1:3], *LOCKING[2:6]):
            connection.execute(statement.encode())
    lent.accept(third := lent.new_login())
    assert lets_in(lent, third)


# By day all ways of locking an owner out at once.
@pytest.mark.nightly
@newest_lent
def test_a_database_that_is_gone_is_made_anew_beside_its_former_name(lent: Subject) -> None:
    ask(lent, "CREATE TABLE kept (n int)")
    # Who stays in the template that is used by default keeps nobody out.
    with session(lent, database="template1"):
        say(lent, LOCKING[-2])
        lent.accept(lent.login)
    assert value(lent, "SELECT to_regclass('kept')") is None
    owner = "SELECT pg_get_userbyid(datdba) FROM pg_database WHERE datname = 'app'"
    assert value(lent, owner) == "app"
    with session(lent, database="former") as connection:
        connection.execute("SELECT FROM kept")
        connection.execute("DROP DATABASE app")
    with session(lent, database="postgres") as connection:
        connection.execute("ALTER DATABASE former RENAME TO app")
    lent.accept(lent.login)
    assert ask(lent, "SELECT * FROM kept") == []


@pytest.mark.nightly
@newest_lent
def test_a_database_whose_removal_was_interrupted_is_made_anew(lent: Subject) -> None:
    """As by a time limit, or by whoever presses Ctrl-C."""
    with session(lent, superuser(lent), "postgres") as connection:
        connection.execute("UPDATE pg_database SET datconnlimit = -2 WHERE datname = 'app'")
    assert not lets_in(lent)
    lent.accept(lent.login)
    assert lets_in(lent)
    assert value(lent, "SELECT datconnlimit FROM pg_database WHERE datname = 'app'") == -1


@pytest.mark.nightly
@every_version_shared
def test_what_would_lock_others_out_is_refused(shared: Subject) -> None:
    for statement in REFUSED:
        with pytest.raises(psycopg.Error) as caught:
            say(shared, statement)
        assert caught.value.sqlstate, statement
    assert lets_in(shared)


@pytest.mark.nightly
@newest_lent
def test_what_keeps_nobody_out_is_kept(lent: Subject) -> None:
    for statement in KEPT:
        say(lent, statement)
    lent.accept(lent.login)
    lent.stop()
    lent.start()
    shown = ask(
        lent,
        """SELECT current_setting('idle_session_timeout'), current_setting('statement_timeout'),
        current_setting('search_path'), current_setting('default_transaction_read_only'),
        (SELECT datconnlimit FROM pg_database WHERE datname = 'app')""",
    )
    assert shown == [("5min", "30s", "own", "on", 7)]


@every_version_shared
def test_nothing_is_made_where_the_administrator_works(shared: Subject) -> None:
    for database in ("postgres", "template1"):
        for statement in CREATING:
            with (
                session(shared, database=database) as connection,
                pytest.raises(psycopg.Error) as caught,
            ):
                connection.execute(statement.encode())
            assert not isinstance(caught.value, psycopg.OperationalError), statement


@pytest.mark.nightly
@newest_lent
def test_large_objects_of_a_login_are_the_owners_wherever_they_are(lent: Subject) -> None:
    """They need no right but to connect."""
    lent.accept(second := lent.new_login(), lent.login)
    places = ("postgres", "template1", "app")
    for database in places:
        with session(lent, second, database) as connection:
            connection.execute("SET ROLE NONE")
            connection.execute("SELECT lo_from_bytea(4711, 'x')")
    lent.accept(third := lent.new_login())
    assert ask(lent, "SELECT FROM pg_roles WHERE rolname = 'app_2'", third) == []
    for database in places:
        with session(lent, third, database) as connection:
            connection.execute("SELECT lo_unlink(4711)")


@newest_lent
def test_what_a_tenant_makes_is_not_what_the_administrator_calls(lent: Subject) -> None:
    with session(lent) as connection:
        connection.execute(
            "CREATE FUNCTION public.version() RETURNS text LANGUAGE sql AS $$ SELECT 'x' $$"
        )
        connection.execute("ALTER DATABASE app SET search_path = public, pg_catalog")

    async def asked() -> list[tuple[object, ...]]:
        inside = connections.administration(
            lent.site.run, superuser(lent), "app", major=int(lent.spec.engine_version)
        )
        async with inside as connection:
            found = await connection.execute("SELECT current_schemas(true)::text, version()")
            return await found.fetchall()

    ((schemas, version),) = lent.run(asked())
    assert schemas == "{pg_catalog}"
    assert str(version).startswith("PostgreSQL")
