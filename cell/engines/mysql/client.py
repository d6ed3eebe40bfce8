"""What a cell says to a server of its own: on its socket, with a password, in a thread."""

import asyncio
import contextlib
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import pymysql
from pymysql.constants import CR, ER

from cell.runtime.engine_files import EnginePath
from gateway import sockets

CONNECT_TIMEOUT_S = 5
ANSWER_TIMEOUT_S = 60
PULSE_TIMEOUT_S = 10
# One in the middle of something takes its time.
END_WITHIN_S = 10.0
LOOK_AGAIN_S = 0.05
# A session that changes its user is shown under whatever name it asked for, be it one of the
# server's own, and is what it was again once that is refused.
CHANGES_USER = "COMMAND = 'Change user'"
SESSIONS = f"SELECT ID FROM information_schema.PROCESSLIST WHERE (USER = %s OR {CHANGES_USER})"  # noqa: S608
QUESTIONS = "SHOW GLOBAL STATUS LIKE 'Questions'"
# The client's own: nobody is there, or nobody answers in time. A server's are of other numbers.
NOT_THERE = range(CR.CR_ERROR_FIRST, CR.CR_ERROR_LAST + 1)
# No thread, place or memory for one more, or a lock that is not released: what others bring about.
HELD_UP = (
    *(ER.CON_COUNT_ERROR, ER.OUTOFMEMORY, ER.OUT_OF_SORTMEMORY, ER.OUT_OF_RESOURCES),
    *(ER.CANT_CREATE_THREAD, ER.LOCK_WAIT_TIMEOUT),
)


class NotThereError(Exception):
    """No server answers on the socket."""


class MySQLHeldUpError(Exception):
    """What others do keeps the server from doing as it was told."""


class MySQLRefusedError(Exception):
    """The server did not do as it was told; the text holds no statement."""


FAILURES = (NotThereError, MySQLHeldUpError, MySQLRefusedError)


async def can_log_in(socket: EnginePath, username: str, password: str) -> bool:
    return await asyncio.to_thread(_can_log_in, socket, username, password)


async def answers(socket: EnginePath, username: str, password: str) -> bool:
    """Whether somebody is there, be it to refuse; HeldUpError where there is no room for us."""
    return await asyncio.to_thread(_answers, socket, username, password)


async def tell(socket: EnginePath, username: str, password: str, statements: Sequence[str]) -> None:
    """Runs them one after another; one of FAILURES where that was not possible."""
    await asyncio.to_thread(_tell, socket, username, password, statements)


async def ask(socket: EnginePath, username: str, password: str, query: str) -> tuple[Any, ...]:
    """The first row of the answer."""
    return await asyncio.to_thread(_ask, socket, username, password, query)


async def end_sessions(socket: EnginePath, username: str, password: str, of: str) -> None:
    """Returns when the user `of` has no session any more, or some that will not end for long."""
    await asyncio.to_thread(_end_sessions, socket, username, password, of)


async def end_some(
    socket: EnginePath, username: str, password: str, of: str, numbers: Sequence[int]
) -> int:
    """Asks those with these numbers to end that are of the user `of`; how many there were."""
    return await asyncio.to_thread(_end_some, socket, username, password, of, numbers)


@contextmanager
def session(
    socket: EnginePath, username: str, password: str, answer_timeout_s: float = ANSWER_TIMEOUT_S
) -> Iterator[Any]:
    """A cursor; what its session holds is let go at the end."""
    connection = opened(socket, username, password, answer_timeout_s)
    try:
        with talking(connection) as cursor:
            yield cursor
    finally:
        connection.close()


def opened(
    socket: EnginePath,
    username: str,
    password: str,
    answer_timeout_s: float,
    flags: int = 0,
) -> Any:
    """A connection that is logged in, for whoever closes it; `flags` are the protocol's."""
    try:
        connection = pymysql.connect(
            defer_connect=True,
            # Else it looks through the machine's authorities for a socket that knows no TLS.
            ssl_disabled=True,
            user=username,
            password=password,
            read_timeout=answer_timeout_s,
            write_timeout=answer_timeout_s,
            charset="utf8mb4",
            autocommit=True,
            client_flag=flags,
        )
        connection.connect(sockets.connect(str(socket), CONNECT_TIMEOUT_S))
    except pymysql.err.OperationalError as error:
        raise _failure(error, "the login was refused") from error
    except (pymysql.err.Error, OSError) as error:
        raise NotThereError(f"the server is not responding: {error}") from error
    return connection


@contextmanager
def talking(connection: Any) -> Iterator[Any]:
    """A cursor of a connection that stays open."""
    with explained(), connection.cursor() as cursor:
        yield cursor


@contextmanager
def explained() -> Iterator[None]:
    """What a server refuses, as one of FAILURES."""
    try:
        yield
    except pymysql.err.Error as error:
        raise _failure(error, "the server refused a statement") from error


def _failure(error: pymysql.err.Error, refused: str) -> Exception:
    """Its text may quote the statement, and that a hash: it is told by its number."""
    number = error.args[0] if error.args else "?"
    if number in NOT_THERE:
        return NotThereError(f"the server is not responding (error {number})")
    kind = MySQLHeldUpError if number in HELD_UP else MySQLRefusedError
    return kind(f"{refused} (error {number})")


def _can_log_in(socket: EnginePath, username: str, password: str) -> bool:
    try:
        with session(socket, username, password) as cursor:
            return bool(cursor.execute("SELECT 1"))
    except FAILURES:
        return False


def _answers(socket: EnginePath, username: str, password: str) -> bool:
    try:
        with session(socket, username, password, PULSE_TIMEOUT_S):
            return True
    except NotThereError:
        return False
    except MySQLRefusedError:
        return True


def _tell(socket: EnginePath, username: str, password: str, statements: Sequence[str]) -> None:
    with session(socket, username, password) as cursor:
        for statement in statements:
            cursor.execute(statement)


def _end_sessions(socket: EnginePath, username: str, password: str, of: str) -> None:
    deadline = time.monotonic() + END_WITHIN_S
    with session(socket, username, password) as cursor:
        while kill_all(cursor, of) and time.monotonic() < deadline:
            time.sleep(LOOK_AGAIN_S)


def _end_some(
    socket: EnginePath, username: str, password: str, of: str, numbers: Sequence[int]
) -> int:
    with session(socket, username, password, PULSE_TIMEOUT_S) as cursor:
        return kill_found(cursor, f"{SESSIONS} AND ID IN %s", [of, numbers])


def kill_all(cursor: Any, of: str) -> int:
    """Asks all sessions of a user to end, and answers how many there were."""
    return kill_found(cursor, SESSIONS, [of])


def kill_found(cursor: Any, query: str, values: Sequence[Any] = ()) -> int:
    """Asks the sessions with these numbers to end, and answers how many there were."""
    cursor.execute(query, values)
    found = cursor.fetchall()
    for (number,) in found:
        # One may end by itself meanwhile.
        with contextlib.suppress(pymysql.err.OperationalError):
            cursor.execute("KILL %s", [number])
    return len(found)


def _ask(socket: EnginePath, username: str, password: str, query: str) -> tuple[Any, ...]:
    with session(socket, username, password) as cursor:
        cursor.execute(query)
        return tuple(cursor.fetchone())
