"""Passwords of logins that are changed with SQL: put back, and no way for the cell to be kept."""

import itertools
import struct

import psycopg
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cell.engines.driver import Health, Login, RestoresLogins
from cell.engines.postgres import connections, scram
from cell.engines.postgres.connections import WrongPasswordError
from cell.engines.postgres.settings import SOCKET
from cell.runtime import relay
from cell.runtime.relay import LimitedRelay
from contract_tests.engines.conftest import Subject
from contract_tests.engines.postgres_sessions import (
    ask,
    every_version,
    newest,
    session,
    superuser,
    value,
)


def restore(running: Subject) -> list[str]:
    assert isinstance(running.driver, RestoresLogins)
    restored: list[str] = running.run(running.driver.restore_logins(running.site))
    return restored


def kept(running: Subject, name: str) -> object:
    asked = f"SELECT rolpassword FROM pg_authid WHERE rolname = '{name}'"
    return value(running, asked, superuser(running))


@every_version
def test_a_password_that_a_trigger_sets_is_put_back(running: Subject) -> None:
    new = running.new_login()
    running.accept(new, running.login)
    ask(running, "CREATE TABLE orders (n int)")
    ask(
        running,
        """CREATE FUNCTION mine() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
        EXECUTE 'SET ROLE NONE';
        EXECUTE format('ALTER ROLE %I PASSWORD %L', session_user, 'known');
        EXECUTE 'SET ROLE app';
        RETURN new; END $$""",
    )
    ask(running, "CREATE TRIGGER mine BEFORE INSERT ON orders FOR EACH ROW EXECUTE FUNCTION mine()")
    before = kept(running, new.username)
    ask(running, "INSERT INTO orders VALUES (1)", new)
    assert not running.works(new)
    assert running.run(running.driver.health(running.site, new)) is Health.CHANGED
    assert restore(running) == [new.username]
    assert kept(running, new.username) == before
    assert running.works(new)
    assert running.works(running.login)
    with pytest.raises(psycopg.OperationalError):
        session(running, Login(new.username, "known"))
    assert restore(running) == []


@newest
def test_only_logins_of_the_cells_are_put_back(running: Subject) -> None:
    """And what a rotation took away is not given back."""
    ask(running, "CREATE ROLE app_9 LOGIN PASSWORD 'of its own'")
    new = running.new_login()
    running.accept(new)
    ask(running, "ALTER ROLE app PASSWORD 'mine'", new)
    assert restore(running) == []
    assert running.works(new)
    assert not running.works(running.login)
    assert not running.works(Login("app", "mine"))


@newest
def test_an_open_transaction_does_not_keep_a_changed_password(running: Subject) -> None:
    new = running.new_login()
    running.accept(new, running.login)
    ask(running, "SET ROLE NONE; ALTER ROLE app_2 PASSWORD 'mine'", new)
    with session(running) as holding:
        holding.execute("SELECT 1")
        with session(running, Login("app_2", "mine")) as changing:
            changing.execute("SET ROLE NONE")
            changing.execute("BEGIN")
            changing.execute("ALTER ROLE app_2 PASSWORD 'another'")
            assert restore(running) == [new.username]
            with pytest.raises(psycopg.OperationalError):
                changing.execute("COMMIT")
    assert running.works(new)


@newest
def test_nobody_works_out_more_iterations_than_the_cell_asked_for(running: Subject) -> None:
    """Libpq does it without an end, and for a minute's work of the server it takes a minute."""
    _, salting, keys = scram.verifier("x").split("$")
    mine = f"SCRAM-SHA-256$50000:{salting.partition(':')[2]}${keys}"
    ask(running, f"ALTER ROLE app PASSWORD '{mine}'")

    async def asked() -> LimitedRelay:
        async with relay.opened(running.site.run / SOCKET, bytes_max=100_000) as way:
            with pytest.raises(WrongPasswordError, match="password authentication failed"):
                await connections.connect(way, running.login, "app")
            return way

    assert running.run(asked()).foreign
    assert running.run(running.driver.health(running.site, running.login)) is Health.CHANGED
    assert not running.works(running.login)
    assert restore(running) == ["app"]
    assert running.works(running.login)


@given(cuts=st.lists(st.integers(1, 200), max_size=5), iterations=st.integers(1, 10_000_000))
def test_iterations_are_seen_however_messages_are_cut(cuts: list[int], iterations: int) -> None:
    salting = relay.Salting()
    asks = struct.pack("!cII", b"R", 23, 10) + b"SCRAM-SHA-256\0\0"
    content = f"r=abc,s=c2FsdA==,i={iterations}".encode()
    notice = b"N\0\0\0\x08S12\0"
    whole = notice + asks + struct.pack("!cII", b"R", 8 + len(content), 11) + content
    edges = [0, *sorted({cut % len(whole) for cut in cuts}), len(whole)]
    parts = [whole[start:stop] for start, stop in itertools.pairwise(edges)]
    *before, last = [salting.is_ours(part) for part in parts]
    assert all(before)
    assert last is (iterations == relay.ITERATIONS)
