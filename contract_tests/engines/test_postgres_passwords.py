"""Passwords of logins that are changed with SQL: put back, and no way for the cell to be kept."""

import itertools
import struct

import psycopg
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cell.engines.driver import Health, Login, RestoresLogins
from cell.engines.postgres import connections, logins, scram
from cell.engines.postgres.configuration import SOCKET
from cell.engines.postgres.connections import WrongPasswordError
from cell.runtime import relay
from cell.runtime.relay import LimitedRelay
from contract_tests.engines.conftest import Subject
from contract_tests.engines.postgres_sessions import (
    ask,
    every_version_lent,
    newest_lent,
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


@newest_lent
def test_the_cells_own_login_is_made_where_it_is_missing(lent: Subject) -> None:
    """Of a server that went on while its cell was replaced by a newer one."""
    own = logins.of_cell(lent.host, lent.site)
    with session(lent, superuser(lent)) as connection:
        connection.execute("DROP ROLE app_0")
    logins.keep(lent.site, logins.of_clients(lent.site))
    assert restore(lent) == []
    with session(lent, own) as connection:
        assert connection.execute("SELECT current_user::text").fetchone() == ("app",)
    assert lent.works(lent.login)


@pytest.mark.nightly
@every_version_lent
def test_a_password_that_a_trigger_sets_is_put_back(lent: Subject) -> None:
    new = lent.new_login()
    lent.accept(new, lent.login)
    ask(lent, "CREATE TABLE orders (n int)")
    ask(
        lent,
        """CREATE FUNCTION mine() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
        EXECUTE 'SET ROLE NONE';
        EXECUTE format('ALTER ROLE %I PASSWORD %L', session_user, 'known');
        EXECUTE 'SET ROLE app';
        RETURN new; END $$""",
    )
    ask(lent, "CREATE TRIGGER mine BEFORE INSERT ON orders FOR EACH ROW EXECUTE FUNCTION mine()")
    before = kept(lent, new.username)
    ask(lent, "INSERT INTO orders VALUES (1)", new)
    assert not lent.works(new)
    assert lent.run(lent.driver.health(lent.site, new)) is Health.CHANGED
    assert restore(lent) == [new.username]
    assert kept(lent, new.username) == before
    assert lent.works(new)
    assert lent.works(lent.login)
    with pytest.raises(psycopg.OperationalError):
        session(lent, Login(new.username, "known"))
    assert restore(lent) == []


@pytest.mark.nightly
@newest_lent
def test_only_logins_of_the_cells_are_put_back(lent: Subject) -> None:
    """And what a rotation took away is not given back."""
    ask(lent, "CREATE ROLE app_9 LOGIN PASSWORD 'of its own'")
    new = lent.new_login()
    lent.accept(new)
    ask(lent, "ALTER ROLE app PASSWORD 'mine'", new)
    assert restore(lent) == []
    assert lent.works(new)
    assert not lent.works(lent.login)
    assert not lent.works(Login("app", "mine"))


@pytest.mark.nightly
@newest_lent
def test_an_open_transaction_does_not_keep_a_changed_password(lent: Subject) -> None:
    new = lent.new_login()
    lent.accept(new, lent.login)
    ask(lent, "SET ROLE NONE; ALTER ROLE app_2 PASSWORD 'mine'", new)
    with session(lent) as holding:
        holding.execute("SELECT 1")
        with session(lent, Login("app_2", "mine")) as changing:
            changing.execute("SET ROLE NONE")
            changing.execute("BEGIN")
            changing.execute("ALTER ROLE app_2 PASSWORD 'another'")
            assert restore(lent) == [new.username]
            with pytest.raises(psycopg.OperationalError):
                changing.execute("COMMIT")
    assert lent.works(new)


@pytest.mark.nightly
@newest_lent
def test_nobody_works_out_more_iterations_than_the_cell_asked_for(lent: Subject) -> None:
    """Libpq does it without an end, and for a minute's work of the server it takes a minute."""
    _, salting, keys = scram.verifier("x").split("$")
    mine = f"SCRAM-SHA-256$50000:{salting.partition(':')[2]}${keys}"
    ask(lent, f"ALTER ROLE app PASSWORD '{mine}'")

    async def asked() -> LimitedRelay:
        async with relay.opened(lent.site.run / SOCKET, bytes_max=100_000) as way:
            with pytest.raises(WrongPasswordError, match="password authentication failed"):
                await connections.connect(way, lent.login, "app")
            return way

    assert lent.run(asked()).foreign
    assert lent.run(lent.driver.health(lent.site, lent.login)) is Health.CHANGED
    assert not lent.works(lent.login)
    assert restore(lent) == ["app"]
    assert lent.works(lent.login)


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
