"""Users that somebody made beforehand are no more after a rotation, nor after a start."""

import contextlib
import socket
from collections.abc import Callable

import pytest
import redis

from cell.engines.driver import Health
from cell.engines.resp import driver
from cell.engines.resp.connection import RefusalError, RespConnection
from contract_tests.cell.rig import until
from contract_tests.engines.conftest import Subject, on_either_resp
from contract_tests.engines.resp_administrator import secret
from contract_tests.engines.speakers import ONCE

pytestmark = on_either_resp

PASSWORD = "of-the-intruders-own"
# Said by an administrator.
PLANTED = (
    f"ACL SETUSER intruder on >{PASSWORD} ~* &* +@all",
    f"ACL SETUSER app >{PASSWORD} +@all",
    f"ACL SETUSER default on >{PASSWORD}",
    f"ACL SETUSER menagerie >{PASSWORD} ~* +@all",
)
# It has written, so that the server would not stop it.
ENDLESS = "redis.call('SET', 'key', 'value') while true do end"
USERNAMES = ("intruder", "app", "default", "menagerie")


def client(subject: Subject, username: str, password: str) -> redis.Redis:
    path = str(subject.site.socket)
    return redis.Redis(unix_socket_path=path, username=username, password=password, retry=ONCE)


def plant(subject: Subject) -> redis.Redis:
    """Answers a session of the intruder's."""
    known = secret(subject)
    with client(subject, "menagerie", known) as ours:
        for statement in PLANTED:
            ours.execute_command(*statement.split())
    for username in USERNAMES:
        with client(subject, username, PASSWORD) as theirs:
            assert theirs.ping()
    session = client(subject, "intruder", PASSWORD)
    session.set("key", "value")
    return session


def rotate(subject: Subject) -> None:
    subject.login = subject.new_login()
    subject.accept(subject.login)


def start_anew(subject: Subject) -> None:
    subject.stop()
    subject.accept(subject.login)
    subject.start()


@pytest.mark.parametrize("changed", [rotate, start_anew])
def test_an_intruder_is_left_nothing(running: Subject, changed: Callable[[Subject], None]) -> None:
    former = running.login
    session = plant(running)
    changed(running)
    for username in USERNAMES:
        with (
            client(running, username, PASSWORD) as theirs,
            pytest.raises(redis.exceptions.RedisError),
        ):
            theirs.get("key")
    with pytest.raises(redis.exceptions.RedisError):
        session.get("key")
    session.close()
    assert running.works(running.login)
    assert running.works(former) == (former == running.login)
    with client(running, "app", running.login.password) as tenant:
        with pytest.raises(redis.exceptions.NoPermissionError):
            tenant.config_get("*")
        assert tenant.ping()


def test_connections_end_with_a_password_and_not_before(running: Subject) -> None:
    former, running.login = running.login, running.new_login()
    with client(running, "app", former.password) as session:
        number = session.client_id()
        running.accept(running.login, former)
        assert session.client_id() == number
        running.accept(running.login)
        with pytest.raises((redis.ConnectionError, redis.AuthenticationError)):
            session.ping()
    assert running.works(running.login)


@pytest.mark.parametrize("said", ["RESET", "PING"], ids=["logged out", "never logged in"])
def test_so_do_those_that_are_not_logged_in(running: Subject, said: str) -> None:
    """They read nothing, and are counted: as many as the size allows would keep the owner out."""
    former, running.login = running.login, running.new_login()
    path = str(running.site.run.outside / "engine.sock")
    with socket.socket(socket.AF_UNIX) as session:
        session.settimeout(10)
        session.connect(path)
        if said == "RESET":
            session.sendall(f"AUTH app {former.password}\r\nRESET\r\n".encode())
            wanted = b"+OK\r\n+RESET\r\n"
        else:
            session.sendall(b"PING\r\n")
            wanted = b"-NOAUTH Authentication required.\r\n"
        received = b""
        while len(received) < len(wanted):
            received += session.recv(100)
        assert received == wanted
        running.accept(running.login, former)
        session.sendall(b"PING\r\n")
        assert session.recv(100).startswith(b"-NOAUTH")
        running.accept(running.login)
        with contextlib.suppress(ConnectionError):
            assert session.recv(100) == b""


@pytest.mark.nightly
def test_a_script_that_cannot_be_stopped_keeps_no_credential_alive(
    running: Subject, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(driver, "TOLD_WITHIN_S", 0.5)
    former, running.login = running.login, running.new_login()
    with client(running, "app", former.password) as session:
        connection = session.connection_pool.get_connection()
        connection.send_command("EVAL", ENDLESS, 0)
        running.accept(running.login)
        assert running.process is not None
        running.run(running.process.ended())
    running.start()
    assert running.works(running.login)
    assert not running.works(former)


def test_an_engine_without_a_place_for_the_cell_keeps_no_credential_alive(
    running: Subject, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(driver, "TOLD_WITHIN_S", 0.5)
    former, running.login = running.login, running.new_login()
    with client(running, "menagerie", secret(running)) as ours:
        ours.config_set("maxclients", 1)
    with client(running, "app", former.password) as session:
        until(lambda: answers(session), "it has the only place")
        pulse = running.driver.health(running.site, running.login)
        assert running.run(pulse) is not Health.WELL
        running.accept(running.login)
        assert running.process is not None
        running.run(running.process.ended())
    running.start()
    assert running.works(running.login)
    assert not running.works(former)


def answers(session: redis.Redis) -> bool:
    try:
        return bool(session.ping())
    except redis.exceptions.RedisError:
        return False


def test_what_broke_off_is_told_again_with_the_end_of_sessions(
    running: Subject, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As where a script begins between the two, and the engine is busy."""
    former, running.login = running.login, running.new_login()
    ask = RespConnection.ask
    broken: list[tuple[str, ...]] = []

    async def once(connection: RespConnection, *words: str) -> str:
        if words[0] == "CLIENT" and not broken:
            broken.append(words)
            raise RefusalError("BUSY")
        return await ask(connection, *words)

    with client(running, "app", former.password) as session:
        assert answers(session)
        monkeypatch.setattr(RespConnection, "ask", once)
        running.accept(running.login)
        assert broken
        assert not answers(session)
    assert running.works(running.login)


def test_an_engine_that_refuses_its_administrator_keeps_no_credential_alive(
    running: Subject, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(driver, "TOLD_WITHIN_S", 0.5)
    former, running.login = running.login, running.new_login()
    with client(running, "menagerie", secret(running)) as ours:
        ours.execute_command("ACL", "SETUSER", "menagerie", "-acl|setuser")
    told = running.run(running.driver.set_credentials(running.site, [running.login]))
    assert "it did not accept new credentials" in (told or "")
    assert running.process is not None
    assert not running.process.alive
    running.start()
    assert running.works(running.login)
    assert not running.works(former)


def test_what_an_intruder_learnt_of_the_administrator_is_good_for_one_start(
    running: Subject,
) -> None:
    """A server that was taken over is told the password, which the gateway lets anybody send."""
    learnt = secret(running)
    with client(running, "menagerie", learnt) as theirs:
        assert theirs.ping()
    start_anew(running)
    with client(running, "menagerie", learnt) as theirs, pytest.raises(redis.AuthenticationError):
        theirs.ping()
    rotate(running)
    assert running.works(running.login)
