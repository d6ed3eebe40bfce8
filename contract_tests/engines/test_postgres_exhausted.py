"""Sessions of a former holder that leave a server no room: they keep no credential alive."""

import contextlib
import os
import signal
from collections.abc import Iterator

import psycopg
import pytest

from cell.engines.driver import Health, Login
from cell.engines.postgres import connections, driver, ended_logins
from contract_tests.engines.conftest import Subject
from contract_tests.engines.postgres_sessions import (
    every_version_lent,
    newest_lent,
    session,
)
from gateway import logins

FILL = "SELECT pg_advisory_lock(i) FROM generate_series(1, 400000) AS i"


@pytest.fixture(autouse=True)
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(driver, "HELD_UP_FOR_S", 0.5)


@contextlib.contextmanager
def full_of_locks(subject: Subject, login: Login) -> Iterator[psycopg.Connection[tuple[int]]]:
    """No session can begin: each locks the database that it begins in."""
    with contextlib.closing(session(subject, login)) as holder:
        with contextlib.suppress(psycopg.errors.OutOfMemory):
            holder.execute(FILL)
        for number in range(1_000_000, 1_000_010):
            with contextlib.suppress(psycopg.errors.OutOfMemory):
                holder.execute("SELECT pg_advisory_lock(%s)", [number])
        with pytest.raises(psycopg.OperationalError, match="out of shared memory"):
            session(subject, login)
        yield holder


def tell(subject: Subject, *logins: Login) -> None:
    """It is ended and told at its next start; what was open has gone.

    Or it has taken them: a session that ended meanwhile left room for the cell's.
    """
    assert subject.process is not None
    told = subject.run(subject.driver.set_credentials(subject.site, logins))
    if told is None:
        subject.login = logins[0]
        return
    assert "it did not accept new credentials" in (told or "")
    assert "out of shared memory" in told
    assert not subject.process.alive
    subject.login = logins[0]
    subject.start()


@pytest.mark.nightly
@every_version_lent
def test_a_full_lock_table_keeps_no_credential_alive(lent: Subject) -> None:
    former, new = lent.login, lent.new_login()
    with full_of_locks(lent, former):
        tell(lent, new, former)
    assert lent.works(former)
    with full_of_locks(lent, former) as holder:
        tell(lent, new)
        with pytest.raises(psycopg.OperationalError):
            holder.execute("SELECT 1")
    assert lent.works(new)
    assert not lent.works(former)


# By day a full table of locks.
@pytest.mark.nightly
@newest_lent
def test_connections_that_are_used_up_keep_no_credential_alive(lent: Subject) -> None:
    former, new = lent.login, lent.new_login()
    with contextlib.ExitStack() as held:
        for _ in range(lent.spec.size.connections_max + logins.MAX):
            held.enter_context(contextlib.closing(session(lent, former)))
        with pytest.raises(psycopg.OperationalError, match="reserved"):
            session(lent, former)
        lent.accept(new)
        assert lent.process is not None
        assert lent.process.alive
        assert lent.works(new)
    assert not lent.works(former)


@newest_lent
def test_a_lock_table_that_stays_full_is_noticed(lent: Subject) -> None:
    with full_of_locks(lent, lent.login):
        pulse = lent.run(lent.driver.health(lent.site, lent.login))
    assert pulse is Health.FULL


@pytest.mark.nightly
@newest_lent
def test_a_login_without_room_is_not_one_that_does_not_work(
    lent: Subject, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The administrator's way has room, and then the login that is tried has none."""
    former, new = lent.login, lent.new_login()
    tried = connections.try_login
    with contextlib.ExitStack() as held:

        async def try_login(folder: object, login: Login) -> None:
            with contextlib.suppress(psycopg.Error):
                held.enter_context(full_of_locks(lent, former))
            await tried(lent.site.run, login)

        monkeypatch.setattr(connections, "try_login", try_login)
        told = lent.run(lent.driver.set_credentials(lent.site, [new]))
        monkeypatch.undo()
    assert told is not None
    lent.login = new
    lent.start()
    assert not lent.works(former)


@pytest.mark.nightly
@newest_lent
def test_a_session_that_does_not_end_ends_with_the_server(
    lent: Subject, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As in the middle of something that is not interrupted; here its process does not run."""
    monkeypatch.setattr(ended_logins, "GONE_WITHIN_S", 0.5)
    former, new = lent.login, lent.new_login()
    process = lent.process
    assert process is not None
    lent.accept(former, new)
    with contextlib.closing(session(lent, former)) as open_session:
        os.kill(lent.outside(open_session.info.backend_pid), signal.SIGSTOP)
        told = lent.run(lent.driver.set_credentials(lent.site, [new]))
        assert "does not end" in (told or "")
        assert not process.alive
        with pytest.raises(psycopg.OperationalError):
            open_session.execute("SELECT 1")
