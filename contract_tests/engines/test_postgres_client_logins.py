"""What a client without settings of its own meets at its login, and what mends it."""

from typing import Any

import psycopg
import pytest

from cell.engines.driver import Login
from cell.engines.postgres import connections, lockouts
from contract_tests.engines.conftest import Subject
from contract_tests.engines.postgres_sessions import (
    ask,
    newest_lent,
    session,
    superuser,
    value,
)
from contract_tests.engines.test_postgres_lockouts import lets_in, say

LONG = "x" * 40_000
ENCODINGS = """
CREATE DATABASE {0} ENCODING '{1}' LOCALE 'C' TEMPLATE template0
"""
SEARCHED = "SELECT current_setting('search_path')"


def replace_app(lent: Subject, name: str, encoding: str) -> None:
    """With a database of this encoding, as its owner can."""
    for statement in (
        ENCODINGS.format(name, encoding),
        "DROP DATABASE app",
        f"ALTER DATABASE {name} RENAME TO app",
    ):
        say(lent, statement)


def say_in_latin(lent: Subject, statement: str) -> None:
    """Where there is a way to it from the database's encoding, a setting is taken."""
    with session(lent, database="latin") as connection:
        connection.execute(statement.encode())


@pytest.mark.nightly
@newest_lent
def test_a_setting_that_client_libraries_cannot_read_is_reset(lent: Subject) -> None:
    """A server reports some at each login, and libpq takes no such message over 30,000 bytes."""
    for number, subject in enumerate(("DATABASE app", "ROLE app", "ROLE app IN DATABASE app")):
        say(lent, f"ALTER {subject} SET search_path = '{LONG}'")
        assert not lets_in(lent), subject
        if number:
            lent.accept(lent.login)
        else:
            lent.stop()
            lent.start()
        assert lets_in(lent), subject
    say(lent, f"ALTER DATABASE app SET search_path = '{'x' * 5_000}'")
    lent.accept(lent.login)
    assert value(lent, SEARCHED) == "x" * 5_000


@pytest.mark.nightly
@newest_lent
def test_a_client_encoding_that_the_database_cannot_convert_to_is_reset(lent: Subject) -> None:
    say(lent, ENCODINGS.format("latin", "LATIN1"))
    for statement in (
        "ALTER DATABASE app SET client_encoding = 'MULE_INTERNAL'",
        "ALTER ROLE app SET client_encoding = 'MULE_INTERNAL'",
        "ALTER ROLE app IN DATABASE app SET client_encoding = 'MULE_INTERNAL'",
    ):
        say_in_latin(lent, statement)
        assert not lets_in(lent), statement
        lent.accept(lent.login)
        assert lets_in(lent), statement
    say(lent, "ALTER DATABASE app SET client_encoding = 'LATIN1'")
    replace_app(lent, "korean", "EUC_KR")
    say(lent, "ALTER DATABASE app SET client_encoding = 'LATIN2'")
    assert not lets_in(lent)
    lent.accept(lent.login)
    assert lets_in(lent)
    assert value(lent, "SHOW server_encoding") == "EUC_KR"
    say(lent, "ALTER DATABASE app SET client_encoding = 'UTF8'")
    lent.accept(lent.login)
    assert value(lent, "SHOW client_encoding") == "UTF8"


@pytest.mark.nightly
@newest_lent
def test_a_database_in_an_encoding_that_no_client_knows_makes_way(
    lent: Subject, capsys: pytest.CaptureFixture[str]
) -> None:
    """It is looked through and handed over all the same, and so is any other."""
    lent.accept(second := lent.new_login(), lent.login)
    replace_app(lent, "mule", "MULE_INTERNAL")
    assert not lets_in(lent)
    own: dict[str, Any] = {
        "host": str(lent.site.run),
        "dbname": "app",
        "client_encoding": "SQL_ASCII",
    }
    own |= {"user": second.username, "password": second.password}
    # Its session stays open, and keeps nothing from happening.
    with psycopg.connect(**own, autocommit=True) as staying:
        staying.execute("SET ROLE NONE")
        staying.execute("CREATE TABLE public.left_behind (n int)")
        lent.accept(third := lent.new_login())
    assert lets_in(lent, third)
    assert ask(lent, "SELECT FROM pg_class WHERE relname = 'left_behind'", third) == []
    found = ask(lent, "SELECT datname FROM pg_database WHERE datname ~ '^app_'", third)
    ((name,),) = found
    own |= {"dbname": name, "user": third.username, "password": third.password}
    owner = "SELECT pg_get_userbyid(relowner) FROM pg_class WHERE relname = 'left_behind'"
    with psycopg.connect(**own) as connection:
        assert connection.execute(owner).fetchone() == (b"app",)
    assert "is not supported" not in capsys.readouterr().out


@pytest.mark.nightly
@newest_lent
def test_what_else_keeps_a_client_out_costs_the_settings_and_not_the_rotation(
    lent: Subject, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Such as what is a lockout in a later version of the server, or of a client's library."""
    monkeypatch.setattr(lockouts, "ENCODING", "none of them")
    lent.accept(second := lent.new_login(), lent.login)
    say(lent, ENCODINGS.format("latin", "LATIN1"))
    say_in_latin(lent, "ALTER DATABASE app SET client_encoding = 'MULE_INTERNAL'")
    assert not lets_in(lent)
    lent.accept(second)
    assert lets_in(lent, second)
    assert not lent.works(lent.login)


@pytest.mark.nightly
@newest_lent
def test_the_administrator_reads_names_in_an_encoding_without_a_conversion(lent: Subject) -> None:
    replace_app(lent, "mule", "MULE_INTERNAL")
    major = int(lent.spec.engine_version)

    async def asked(login: Login) -> tuple[object, ...] | None:
        inside = connections.administration(lent.site.run, login, "app", major=major)
        async with inside as connection:
            query = "SELECT 'a'::text, 'app'::name, %s::varchar, datdba::regrole FROM pg_database"
            return await (await connection.execute(query, ["c"])).fetchone()

    assert lent.run(asked(superuser(lent)))[:3] == ("a", "app", "c")
