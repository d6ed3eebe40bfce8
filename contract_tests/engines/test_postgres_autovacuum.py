"""Code of a former holder that autovacuum runs: when it does not, and what it cannot end."""

import signal
import time
from pathlib import Path

import psycopg
import pytest

from cell.engines.postgres import connections, roles
from cell.engines.postgres.driver import PostgreSQL
from contract_tests.engines.conftest import Subject
from contract_tests.engines.postgres_sessions import (
    every_version_lent,
    newest_lent,
    session,
    superuser,
    value,
)

# Ends every session that it may, and goes on whoever cancels it.
LEFT = """
CREATE FUNCTION left_behind(n int) RETURNS int LANGUAGE plpgsql IMMUTABLE AS $$
DECLARE
    kind text := backend_type FROM pg_stat_activity WHERE pid = pg_backend_pid();
BEGIN
    -- calling
    WHILE kind = 'autovacuum worker' LOOP
        BEGIN
            PERFORM pg_stat_clear_snapshot();
            PERFORM pg_sleep(0.05);
            PERFORM pg_terminate_backend(pid) FROM pg_stat_activity WHERE usename LIKE 'app%';
        EXCEPTION WHEN query_canceled OR insufficient_privilege THEN NULL;
        END;
    END LOOP;
    RETURN n;
END $$
"""
# Each has autovacuum call it.
INDEX = "CREATE INDEX ON counted (left_behind(n))"
STATISTICS = "CREATE STATISTICS s ON (left_behind(n)), n FROM counted"
RANGE = """
CREATE FUNCTION apart(a int, b int) RETURNS float8 LANGUAGE sql IMMUTABLE
    AS 'SELECT public.left_behind(a - b)';
CREATE TYPE spread AS RANGE (subtype = int, subtype_diff = apart);
ALTER TABLE counted ADD r spread DEFAULT spread(1, 9)
"""
LOCKS = """
CREATE FUNCTION hold_up() RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    ALTER ROLE app SET work_mem = 5000;
END $$
"""
CALLING = "IF kind = 'autovacuum worker' THEN PERFORM public.hold_up(); END IF;"
WORKERS = "SELECT count(*) FROM pg_stat_activity WHERE backend_type = 'autovacuum worker'"
AT_ALL = "SELECT count(*) FROM pg_stat_activity WHERE backend_type LIKE 'autovacuum %'"
END_OTHERS = "SELECT pg_terminate_backend(%s)"
WITHIN_S = 60.0
DOCUMENT = Path(__file__).parents[2] / "docs/engines/postgres.md"
pytestmark = pytest.mark.usefixtures("lent")


def soon(subject: Subject) -> None:
    """Autovacuum begins now, and looks every second."""
    assert isinstance(subject.driver, PostgreSQL)
    assert subject.process is not None
    with (subject.site.configuration / "postgresql.conf").open("a") as file:
        file.write("autovacuum_naptime = 1s\n")
    subject.driver.autovacuum.held_for_s = 0
    subject.driver.metrics(subject.site, subject.process)
    subject.driver.autovacuum.held_for_s = 60
    subject.process.signal(signal.SIGHUP)


def until_it_runs(subject: Subject) -> None:
    deadline = time.monotonic() + WITHIN_S
    with session(subject, superuser(subject), "postgres") as connection:
        while connection.execute(f"{WORKERS} AND wait_event = 'PgSleep'").fetchone() == (0,):
            assert time.monotonic() < deadline
            time.sleep(0.05)


def leave(subject: Subject, what: str, calling: str = "") -> None:
    with session(subject) as connection:
        connection.execute("CREATE TABLE counted (n int)")
        if calling:
            connection.execute(calling.encode())
        connection.execute(LEFT.replace("-- calling", CALLING if calling else "").encode())
        connection.execute(what.encode())
        connection.execute("INSERT INTO counted SELECT generate_series(1, 500)")


def _documented() -> bytes:
    """The question by which an owner finds such functions."""
    said = DOCUMENT.read_text()
    return said[said.index("SELECT pg_describe_object") :].partition(";")[0].encode()


# By day which sessions a login ends.
@pytest.mark.nightly
@every_version_lent
@pytest.mark.parametrize(
    "what",
    [
        pytest.param(INDEX, id="index"),
        pytest.param(STATISTICS, id="statistics", marks=pytest.mark.nightly),
        pytest.param(RANGE, id="range", marks=pytest.mark.nightly),
    ],
)
def test_what_a_former_holder_left_keeps_nobody_out(lent: Subject, what: str) -> None:
    leave(lent, what)
    soon(lent)
    until_it_runs(lent)
    lent.login = lent.new_login()
    lent.accept(lent.login)
    with session(lent) as connection:
        assert connection.execute("SHOW autovacuum").fetchone() == ("off",)
        assert connection.execute(AT_ALL).fetchone() == (0,)
        # Also where it runs again, it may end no session of the new login.
        soon(lent)
        until_it_runs(lent)
        lent.accept(lent.login)
        found = connection.execute(_documented()).fetchall()
        assert any("left_behind" in uses or "apart" in uses for _, uses in found)
        connection.execute("DROP TABLE counted")


async def lock_catalog(subject: Subject) -> None:
    """As each change of credentials does."""
    ours = superuser(subject)
    async with (
        connections.administration(subject.site.run, ours) as connection,
        connections.unhindered(connection, subject.site.run, ours),
        connection.transaction(),
    ):
        await connection.execute(roles.ALONE)


@pytest.mark.nightly
@newest_lent
def test_it_begins_a_minute_after_a_start(lent: Subject, monkeypatch: pytest.MonkeyPatch) -> None:
    assert isinstance(lent.driver, PostgreSQL)
    assert lent.process is not None
    assert value(lent, "SHOW autovacuum") == "off"
    lent.driver.metrics(lent.site, lent.process)
    assert value(lent, "SHOW autovacuum") == "off"
    leave(lent, INDEX)
    soon(lent)
    until_it_runs(lent)
    lent.stop()
    lent.start()
    assert value(lent, "SHOW autovacuum") == "off"
    assert value(lent, AT_ALL) == 0
    monkeypatch.setattr(lent.driver.autovacuum, "held_for_s", 0)
    lent.driver.metrics(lent.site, lent.process)
    deadline = time.monotonic() + WITHIN_S
    while value(lent, "SHOW autovacuum") != "on":
        assert time.monotonic() < deadline
        time.sleep(0.02)


# By day which sessions a login ends.
@pytest.mark.nightly
@newest_lent
def test_what_autovacuum_locks_holds_up_no_rotation(lent: Subject) -> None:
    """A catalog that each rotation writes to; what owns the lock logs in as nobody."""
    process = lent.process
    leave(lent, INDEX, calling=LOCKS)
    soon(lent)
    until_it_runs(lent)
    lent.run(lock_catalog(lent))
    soon(lent)
    until_it_runs(lent)
    lent.login = lent.new_login()
    lent.accept(lent.login)
    assert lent.works(lent.login)
    assert lent.process is process
    assert process is not None
    assert process.alive


@pytest.mark.nightly
@every_version_lent
def test_which_sessions_a_login_ends(lent: Subject) -> None:
    """Its own, those of `app`, and those of roles of `app`, once it has left the role."""
    first = lent.login
    lent.accept(first, second := lent.new_login())
    lent.accept(first, second, third := lent.new_login())
    ended = {(first, first), (second, second), (second, first), (third, third), (third, first)}
    for who in (first, second, third):
        for whose in (first, second, third):
            with session(lent, who) as one, session(lent, whose) as other:
                one.execute("SET ROLE NONE")
                try:
                    one.execute(END_OTHERS, [other.info.backend_pid])
                except psycopg.errors.InsufficientPrivilege:
                    assert (who, whose) not in ended
                else:
                    assert (who, whose) in ended
    for whose in (third, superuser(lent)):
        with (
            session(lent, third) as one,
            session(lent, whose) as other,
            pytest.raises(psycopg.errors.InsufficientPrivilege),
        ):
            one.execute(END_OTHERS, [other.info.backend_pid])
