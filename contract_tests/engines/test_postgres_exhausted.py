"""Sessions of a former holder that leave a server no room: they keep no credential alive."""

import contextlib
import os
import signal
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest

from cell.engines.driver import Health, Login
from cell.engines.postgres import connections, driver, ended_logins
from contract_tests.engines.conftest import Subject
from contract_tests.engines.postgres_sessions import every_version, newest, session
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
    assert "it did not take new credentials" in (told or "")
    assert "out of shared memory" in told
    assert not subject.process.alive
    subject.login = logins[0]
    subject.start()


@every_version
def test_a_full_lock_table_keeps_no_credential_alive(running: Subject) -> None:
    former, new = running.login, running.new_login()
    with full_of_locks(running, former):
        tell(running, new, former)
    assert running.works(former)
    with full_of_locks(running, former) as holder:
        tell(running, new)
        with pytest.raises(psycopg.OperationalError):
            holder.execute("SELECT 1")
    assert running.works(new)
    assert not running.works(former)


@newest
def test_connections_that_are_used_up_keep_no_credential_alive(running: Subject) -> None:
    former, new = running.login, running.new_login()
    with contextlib.ExitStack() as held:
        for _ in range(running.spec.size.connections_max + logins.MAX):
            held.enter_context(contextlib.closing(session(running, former)))
        with pytest.raises(psycopg.OperationalError, match="reserved"):
            session(running, former)
        running.accept(new)
        assert running.process is not None
        assert running.process.alive
        assert running.works(new)
    assert not running.works(former)


@newest
def test_a_lock_table_that_stays_full_is_noticed(running: Subject) -> None:
    with full_of_locks(running, running.login):
        pulse = running.run(running.driver.health(running.site, running.login))
    assert pulse is Health.FULL


@newest
def test_a_login_without_room_is_not_one_that_does_not_work(
    running: Subject, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The administrator's way has room, and then the login that is tried has none."""
    former, new = running.login, running.new_login()
    tried = connections.try_login
    with contextlib.ExitStack() as held:

        async def try_login(folder: object, login: Login) -> None:
            with contextlib.suppress(psycopg.Error):
                held.enter_context(full_of_locks(running, former))
            await tried(running.site.run, login)

        monkeypatch.setattr(connections, "try_login", try_login)
        told = running.run(running.driver.set_credentials(running.site, [new]))
        monkeypatch.undo()
    assert told is not None
    running.login = new
    running.start()
    assert not running.works(former)


@newest
def test_a_session_that_does_not_end_ends_with_the_server(
    running: Subject, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As in the middle of something that is not interrupted; here its process does not run."""
    monkeypatch.setattr(ended_logins, "GONE_WITHIN_S", 0.5)
    former, new = running.login, running.new_login()
    process = running.process
    assert process is not None
    running.accept(former, new)
    with contextlib.closing(session(running, former)) as open_session:
        os.kill(backend_of(process.pid, former.username), signal.SIGSTOP)
        told = running.run(running.driver.set_credentials(running.site, [new]))
        assert "does not end" in (told or "")
        assert not process.alive
        with pytest.raises(psycopg.OperationalError):
            open_session.execute("SELECT 1")


def backend_of(pid: int, username: str) -> int:
    """The process of the only session of this user, of the server that has or is below `pid`."""
    found = [pid]
    for each in found:
        found += map(int, Path(f"/proc/{each}/task/{each}/children").read_text().split())
        command = Path(f"/proc/{each}/cmdline").read_bytes()
        if command.startswith(f"postgres: {username} ".encode()):
            return each
    raise AssertionError("there is no such session")
