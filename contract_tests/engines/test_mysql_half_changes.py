"""A session of MariaDB in the middle of a change of its user ends like any other of its user's.

While the server waits for the client's part, it shows the session under the name that was asked
for, which anybody can choose; and once that is refused, the session is what it was.
"""

import struct
from collections.abc import Iterator
from contextlib import closing, contextmanager
from typing import Any

import pymysql
import pytest

from cell.engines.driver import Login
from cell.engines.mysql import client
from contract_tests.engines.conftest import Subject
from contract_tests.engines.mysql_sessions import administrator, driver_of, on_mariadb

CHANGE_USER = 0x11
SWITCH, FAILED = 0xFE, 0xFF
CELLS = "the cell's own"
# Those that the server uses itself, the tenant's, and nobody's.
NAMES = ("system user", "unauthenticated user", "event_scheduler", CELLS, "app", "nobody", "")
A_YEAR_S = 365 * 86_400


@contextmanager
def half_changed(subject: Subject, login: Login, name: str) -> Iterator[Any]:
    """A session as far as the server's question."""
    with closing(
        pymysql.connect(
            unix_socket=str(subject.site.socket),
            user=login.username,
            password=login.password,
            database="app",
            ssl_disabled=True,
            autocommit=True,
        )
    ) as connection:
        with connection.cursor() as cursor:
            cursor.execute("SET SESSION net_read_timeout = %s", [A_YEAR_S])
        asked = bytes([CHANGE_USER]) + name.encode() + b"\0\0app\0" + struct.pack("<H", 45)
        _send(connection, 0, asked + b"mysql_clear_no\0\0")
        assert _receive(connection)[1][0] == SWITCH
        yield connection


def finished(connection: Any) -> bool:
    """Whether the session is there again, once the change has been refused."""
    try:
        number, answer = 1, bytes([SWITCH])
        while answer[0] == SWITCH:
            _send(connection, number + 1, b"\1" * 20)
            number, answer = _receive(connection)
        assert answer[0] == FAILED
        connection._next_seq_id = 0
        with connection.cursor() as cursor:
            return bool(cursor.execute("SELECT 1"))
    except (pymysql.err.MySQLError, OSError):
        return False


def _send(connection: Any, number: int, body: bytes) -> None:
    connection._write_bytes(len(body).to_bytes(3, "little") + bytes([number & 255]) + body)


def _receive(connection: Any) -> tuple[int, bytes]:
    head = connection._read_bytes(4)
    return head[3], connection._read_bytes(int.from_bytes(head[:3], "little"))


@pytest.mark.parametrize("name", NAMES)
@on_mariadb
def test_it_ends_with_its_password(running: Subject, name: str) -> None:
    former, running.login = running.login, running.new_login()
    asked = administrator(running).username if name == CELLS else name
    with half_changed(running, former, asked) as held:
        running.accept(running.login)
        assert not finished(held)
    assert running.works(running.login)


@on_mariadb
def test_without_that_it_is_what_it_was(running: Subject) -> None:
    """Which shows that the test above does not pass for another reason."""
    with half_changed(running, running.login, "system user") as held:
        assert finished(held)


@on_mariadb
def test_it_keeps_no_right_to_write_once_the_storage_is_full(running: Subject) -> None:
    limit: Any = driver_of(running)._holder
    with half_changed(running, running.login, "system user") as held:
        own = administrator(running)
        with client.session(running.site.socket, own.username, own.password) as cursor:
            limit._set(running.site, cursor, full=True)
        assert not finished(held)
