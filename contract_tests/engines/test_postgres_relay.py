"""A relay in front of a real server: what comes through it, and what ends it."""

import asyncio
import time
from collections.abc import Awaitable, Callable

import psycopg
import pytest

from cell.engines.postgres import connections
from cell.engines.postgres.configuration import SOCKET
from cell.runtime import relay
from cell.runtime.relay import LimitedRelay
from contract_tests.cell.rig import until
from contract_tests.engines.conftest import Subject
from contract_tests.engines.postgres_sessions import newest_lent, newest_shared, session, value

ASK = Callable[[psycopg.AsyncConnection[tuple[object, ...]]], Awaitable[None]]
FEW, MANY = 100_000, 2_000_000
LARGE = f"SELECT repeat('x', {MANY})"
LARGE_ERROR = f"DO $$ BEGIN RAISE EXCEPTION '%', repeat('x', {MANY}); END $$"
LARGE_WARNINGS = "DO $$ BEGIN LOOP RAISE WARNING '%', repeat('x', 10000); END LOOP; END $$"
MANY_ROWS = f"SELECT n FROM generate_series(1, {MANY}) n"
# A limit of the server's own is lifted from within.
STUBBORN = """DO $$ BEGIN PERFORM set_config('statement_timeout', '0', false); LOOP BEGIN
PERFORM pg_sleep(60); EXCEPTION WHEN query_canceled THEN NULL; END; END LOOP; END $$"""


def through(
    running: Subject, ask: ASK, *, bytes_max: int = FEW, within_s: float | None = None
) -> LimitedRelay:
    async def asked() -> LimitedRelay:
        target = running.site.run / SOCKET
        async with relay.opened(target, bytes_max=bytes_max, within_s=within_s) as way:
            connection = await connections.connect(way, running.login, "app")
            await ask(connection)
            await connection.close()
        return way

    way: LimitedRelay = running.run(asked())
    assert not way.folder.exists()
    return way


@newest_shared
def test_what_is_asked_in_bounds_is_answered(shared: Subject) -> None:
    async def ask(connection: psycopg.AsyncConnection[tuple[object, ...]]) -> None:
        found = await connection.execute("SELECT repeat('x', 50000)")
        assert await found.fetchone() == ("x" * 50_000,)
        with pytest.raises(psycopg.errors.DivisionByZero):
            await connection.execute("SELECT 1 / 0")
        # A cancel comes on a connection of its own.
        sleeping = asyncio.create_task(connection.execute("SELECT pg_sleep(60)"))
        while not sleeping.done():
            await connection.cancel_safe()
            await asyncio.sleep(0.05)
        with pytest.raises(psycopg.errors.QueryCanceled):
            await sleeping

    way = through(shared, ask, within_s=60)
    assert (way.exceeded, way.late) == (False, False)


@newest_shared
@pytest.mark.parametrize("statement", [LARGE, LARGE_ERROR, LARGE_WARNINGS, MANY_ROWS])
def test_what_is_more_than_may_be_ends_the_connection(shared: Subject, statement: str) -> None:
    async def ask(connection: psycopg.AsyncConnection[tuple[object, ...]]) -> None:
        with pytest.raises(psycopg.OperationalError, match="closed the connection"):
            await connection.execute(statement.encode())

    assert through(shared, ask).exceeded


@newest_shared
def test_a_statement_that_no_limit_ends_is_not_waited_for(shared: Subject) -> None:
    async def ask(connection: psycopg.AsyncConnection[tuple[object, ...]]) -> None:
        began = time.monotonic()
        with pytest.raises(psycopg.OperationalError, match="closed the connection"):
            await connection.execute(STUBBORN)
        assert time.monotonic() - began < 30

    assert through(shared, ask, within_s=0.5).late


@newest_lent
def test_nobody_is_let_in_without_the_password(lent: Subject) -> None:
    lent.stop()

    async def ask(_: psycopg.AsyncConnection[tuple[object, ...]]) -> None:
        pytest.fail("nobody runs")

    with pytest.raises(connections.NotRunningError):
        through(lent, ask)


@pytest.mark.nightly
@newest_shared
def test_a_statement_ends_soon_after_its_client_has_gone(shared: Subject) -> None:
    """An owner's own connection, with the settings it is given."""
    gone = session(shared)
    gone.pgconn.send_query(b"SELECT pg_sleep(3600)")
    working = "SELECT count(*) FROM pg_stat_activity WHERE wait_event = 'PgSleep'"
    until(lambda: value(shared, working) == 1, "it works")
    gone.close()
    until(lambda: value(shared, working) == 0, "it has ended")
