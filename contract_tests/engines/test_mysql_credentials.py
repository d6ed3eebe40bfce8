"""Rotation on MariaDB: several passwords of one user, and none of them on disk."""

import contextlib
import hashlib
import shutil
import socket
import struct
import subprocess
from collections.abc import Iterator
from typing import Any

import pymysql
import pytest
from pymysql.constants import ER

from cell.engines.driver import Health, Login
from cell.engines.mysql import accounts, driver
from contract_tests.attacks.statements import called
from contract_tests.cell.rig import until
from contract_tests.engines.conftest import Subject
from contract_tests.engines.mysql_sessions import (
    administrator,
    driver_of,
    let_events_run,
    on_mariadb,
    rows,
    session,
    use_up_threads,
)

PROTOCOL_41, SECURE, PLUGINS = 0x200, 0x8000, 0x80000
SWITCH = 0xFE
INTRUDER = Login("app", "Of-the-1ntruders-own")
SET = f"SET PASSWORD = PASSWORD('{INTRUDER.password}')"
EVENT = f"""
CREATE EVENT own_password ON SCHEDULE EVERY 1 SECOND DO
BEGIN
  INSERT INTO app.ticks VALUES (NOW());
  {SET};
END
"""
OTHERS = (
    "SELECT ID FROM information_schema.PROCESSLIST WHERE USER = 'app' AND ID <> CONNECTION_ID()"
)
LOCKOUT = f"""
CREATE EVENT lockout ON SCHEDULE EVERY 1 SECOND DO
BEGIN
  DECLARE CONTINUE HANDLER FOR 1094 BEGIN END;
  LOOP
    FOR other IN ({OTHERS}) DO EXECUTE IMMEDIATE CONCAT('KILL ', other.ID); END FOR;
    DO SLEEP(0.05);
  END LOOP;
END
"""
ALTER = f"ALTER USER IF EXISTS CURRENT_USER() IDENTIFIED BY '{INTRUDER.password}'"
ROUTINES = (
    f"CREATE PROCEDURE own() {SET}",
    f"CREATE DEFINER = CURRENT_USER PROCEDURE altered() SQL SECURITY DEFINER {ALTER}",
)


@pytest.mark.nightly
@on_mariadb
def test_both_passwords_work_in_the_systems_own_client(running: Subject) -> None:
    command = shutil.which("mariadb") or shutil.which("mysql")
    if command is None:
        pytest.skip("no mariadb client is installed")
    older, newer = running.login, running.new_login()
    running.accept(newer, older)

    def ask(login: Login) -> "subprocess.CompletedProcess[str]":
        return subprocess.run(
            [
                command,
                "--no-defaults",
                "-S",
                str(running.site.socket),
                "-u",
                "app",
                "-Ne",
                "SELECT 7",
            ],
            env={"MYSQL_PWD": login.password},
            capture_output=True,
            text=True,
            check=False,
        )

    assert ask(newer).stdout == ask(older).stdout == "7\n"
    running.accept(newer)
    assert ask(newer).stdout == "7\n"
    assert "Access denied" in ask(older).stderr


@on_mariadb
def test_every_password_is_tried_on_the_scramble_of_the_greeting(running: Subject) -> None:
    """What the gateway builds on: it answers further requests with the client's one answer."""
    logins = [running.new_login(), running.new_login(), running.login]
    running.accept(*logins)
    for further, login in enumerate(logins):
        assert _log_in(running, login) == (further, 0x00)
    assert _log_in(running, Login("app", "wrong")) == (2, 0xFF)


@on_mariadb
def test_sessions_end_with_a_password_and_not_before(running: Subject) -> None:
    """Else who was in when it leaked would be in for good, and could set a password of his own."""
    older, newer = running.login, running.new_login()
    with session(running.site, older) as cursor:
        running.accept(newer, older)
        cursor.execute("SELECT 1")
        running.accept(newer)
        with pytest.raises((pymysql.err.OperationalError, pymysql.err.InterfaceError)):
            cursor.execute("SELECT 1")
    assert running.works(newer)


@pytest.mark.nightly
@on_mariadb
def test_passwords_change_while_the_engine_rests_or_starts(running: Subject) -> None:
    older, newer = running.login, running.new_login()
    running.stop()
    running.accept(newer, older)
    running.start()
    assert running.works(newer)
    assert running.works(older)
    running.stop()
    running.process = running.run(running.driver.start(running.site, running.spec))
    # The server may have read the former accounts by now, or not; it must not matter.
    running.accept(newer)
    assert running.works(newer)
    assert not running.works(older)


@pytest.mark.nightly
@on_mariadb
def test_an_owner_sets_no_password(running: Subject) -> None:
    for statement in called("mariadb", "passwords"):
        with pytest.raises(pymysql.err.MySQLError):
            rows(running, statement)
        assert running.works(running.login), statement
        assert not running.works(INTRUDER), statement


@on_mariadb
def test_an_event_of_the_former_holder_sets_no_password(running: Subject) -> None:
    """It runs without anybody logged in, after each rotation and each start."""
    with session(running.site, running.login) as cursor:
        cursor.execute("CREATE TABLE ticks (at TIMESTAMP)")
        cursor.execute(EVENT)
        for routine in ROUTINES:
            cursor.execute(routine)
    running.login = running.new_login()
    running.accept(running.login)
    for begun_anew in (False, True):
        if begun_anew:
            running.stop()
            running.start()
        let_events_run(running)
        before = ticks(running)
        until(lambda since=before: ticks(running) > since + 1, "the event has run")  # type: ignore[misc]
        for name in ("own", "altered"):
            with pytest.raises(pymysql.err.MySQLError):
                rows(running, f"CALL {name}()")
        assert not running.works(INTRUDER)


@pytest.mark.nightly
@on_mariadb
def test_events_that_end_all_sessions_keep_no_owner_out(running: Subject) -> None:
    """Not after a rotation, nor after a start: there is time to drop them."""
    let_events_run(running)
    rows(running, LOCKOUT)
    until(lambda: is_cut_off(running), "the event ends sessions")
    driver_of(running).events.held_for_s = 60
    for begun_anew in (False, True):
        if begun_anew:
            running.stop()
            running.start()
        else:
            running.login = running.new_login()
            running.accept(running.login)
        running.driver.metrics(running.site, running.process)
        assert not is_cut_off(running)
    rows(running, "DROP EVENT app.lockout")
    let_events_run(running)
    assert not is_cut_off(running)


@on_mariadb
def test_more_events_than_threads_allow_are_stopped(running: Subject) -> None:
    """A former holder's could take every thread, so that no credential could be ended."""
    for statement in called("mariadb", "events"):
        rows(running, statement)
    let_events_run(running)
    driver_of(running).events.held_for_s = 60

    def notice() -> str | None:
        return running.driver.metrics(running.site, running.process).notice

    assert "more than 64 events ran at once" in until(notice, "it is told")
    until(lambda: not rows(running, "SELECT @@event_scheduler = 'ON'")[0][0], "none begins")
    until(lambda: is_alone(running), "all have ended")


def is_alone(subject: Subject) -> bool:
    return int(rows(subject, "SELECT COUNT(*) FROM information_schema.PROCESSLIST")[0][0]) == 1


@on_mariadb
def test_no_session_outlives_its_password_where_the_cell_cannot_log_in(
    running: Subject, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(driver, "HELD_UP_FOR_S", 0.5)
    former, running.login = running.login, running.new_login()
    process = running.process
    assert process is not None
    held = use_up_threads(process.pid, lambda: opened(running, former))
    assert running.run(running.driver.health(running.site, running.login)) is Health.FULL
    told = running.run(running.driver.set_credentials(running.site, [running.login]))
    assert "it did not accept new credentials" in told
    assert not process.alive
    for each in held:
        with pytest.raises(pymysql.err.MySQLError):
            each.ping(reconnect=False)
    running.start()
    assert running.works(running.login)
    assert not running.works(former)


@pytest.mark.nightly
@on_mariadb
def test_no_session_outlives_its_password_where_the_cell_is_refused(
    running: Subject, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(driver, "HELD_UP_FOR_S", 0.5)
    former, running.login = running.login, running.new_login()
    process = running.process
    assert process is not None
    ours = administrator(running)
    held = opened(running, former)
    with contextlib.closing(opened(running, ours)) as connection:
        connection.query("ALTER USER CURRENT_USER() ACCOUNT LOCK")
    told = running.run(running.driver.set_credentials(running.site, [running.login]))
    assert "it did not accept new credentials" in (told or "")
    assert not process.alive
    with pytest.raises(pymysql.err.MySQLError):
        held.ping(reconnect=False)
    running.start()
    assert running.works(running.login)
    assert not running.works(former)


@on_mariadb
def test_connections_that_are_used_up_keep_no_password_alive(running: Subject) -> None:
    former, running.login = running.login, running.new_login()
    with contextlib.ExitStack() as held:
        for _ in range(running.spec.size.connections_max):
            held.enter_context(contextlib.closing(opened(running, former)))
        with pytest.raises(pymysql.err.OperationalError) as full:
            opened(running, former)
        assert full.value.args[0] in {ER.TOO_MANY_USER_CONNECTIONS, ER.CON_COUNT_ERROR}
        running.accept(running.login)
        assert running.process is not None
        assert running.process.alive
    assert running.works(running.login)
    assert not running.works(former)


def opened(subject: Subject, login: Login) -> Any:
    socket_ = str(subject.site.socket)
    return pymysql.connect(
        unix_socket=socket_, user=login.username, password=login.password, ssl_disabled=True
    )


def is_cut_off(subject: Subject) -> bool:
    """Whether a session lasts shorter than an event takes to begin."""
    try:
        rows(subject, "SELECT SLEEP(1.5)")
    except pymysql.err.MySQLError:
        return True
    return False


@on_mariadb
def test_a_login_that_was_half_done_ends_with_its_password(running: Subject) -> None:
    """The server has looked up the account by then, with the passwords that it had."""
    former, running.login = running.login, running.new_login()
    with contextlib.ExitStack() as held:
        halves = [held.enter_context(half_login(running)) for _ in range(3)]
        assert finish(*halves.pop(), former)
        running.accept(running.login)
        assert not any(finish(*half, former) for half in halves)
    assert running.works(running.login)


def ticks(subject: Subject) -> int:
    return int(rows(subject, "SELECT COUNT(*) FROM ticks")[0][0])


@on_mariadb
def test_no_password_lies_in_the_site(running: Subject) -> None:
    newer = running.new_login()
    running.accept(newer, running.login)
    running.stop()
    secrets = [newer.password, running.login.password, administrator(running).password]
    for path in running.site.directory.rglob("*"):
        if path.is_file():
            content = path.read_bytes()
            assert not [secret for secret in secrets if secret.encode() in content], path
    accounts_file = running.site.configuration / "accounts.sql"
    assert accounts.native_hash(newer.password) in accounts_file.read_text()
    assert not accounts_file.stat().st_mode & 0o007


@on_mariadb
def test_without_a_valid_password_nobody_is_let_in(running: Subject) -> None:
    running.accept()
    assert not running.works(running.login)
    running.accept(running.login)
    assert running.works(running.login)


@contextlib.contextmanager
def half_login(subject: Subject) -> Iterator[tuple[socket.socket, int, bytes]]:
    """As far as the server's question."""
    with socket.socket(socket.AF_UNIX) as peer:
        peer.connect(str(subject.site.socket))
        number, _ = _read(peer)
        fixed = struct.pack("<IIB23x", PROTOCOL_41 | SECURE | PLUGINS | 1, 1 << 24, 45)
        _write(peer, number + 1, fixed + b"app\0" + bytes([20]) + bytes(20) + b"ask_again\0")
        number, asked = _read(peer)
        assert asked[0] == SWITCH
        yield peer, number, asked.split(b"\0", 1)[1][:20]


def finish(peer: socket.socket, number: int, scramble: bytes, login: Login) -> bool:
    try:
        _write(peer, number + 1, _native_answer(login.password, scramble))
        return _read(peer)[1][0] == 0x00
    except (AssertionError, ConnectionError):
        return False


def _log_in(subject: Subject, login: Login) -> tuple[int, int]:
    """How often the server asked again, and the first byte of its verdict."""
    with socket.socket(socket.AF_UNIX) as peer:
        peer.connect(str(subject.site.socket))
        number, greeting = _read(peer)
        rest = greeting[greeting.index(0, 1) + 1 :]
        scramble = rest[4:12] + rest[31:43]
        answer = _native_answer(login.password, scramble)
        fixed = struct.pack("<IIB23x", PROTOCOL_41 | SECURE | PLUGINS | 1, 1 << 24, 45)
        name = login.username.encode()
        body = fixed + name + b"\0" + bytes([20]) + answer + b"mysql_native_password\0"
        _write(peer, number + 1, body)
        number, verdict = _read(peer)
        asked = 0
        while verdict[0] == SWITCH:
            asked += 1
            assert verdict[1:].split(b"\0", 1) == [b"mysql_native_password", scramble + b"\0"]
            _write(peer, number + 1, answer)
            number, verdict = _read(peer)
        return asked, verdict[0]


def _native_answer(password: str, scramble: bytes) -> bytes:
    once = hashlib.sha1(password.encode()).digest()
    mask = hashlib.sha1(scramble + hashlib.sha1(once).digest()).digest()
    return bytes(a ^ b for a, b in zip(once, mask, strict=True))


def _read(peer: socket.socket) -> tuple[int, bytes]:
    head = _exactly(peer, 4)
    return head[3], _exactly(peer, int.from_bytes(head[:3], "little"))


def _exactly(peer: socket.socket, size: int) -> bytes:
    content = b""
    while len(content) < size:
        piece = peer.recv(size - len(content))
        assert piece, "the server hung up"
        content += piece
    return content


def _write(peer: socket.socket, number: int, body: bytes) -> None:
    peer.sendall(len(body).to_bytes(3, "little") + bytes([number]) + body)
