"""Running SQL on a MariaDB or MySQL instance: PyMySQL, which reads rows as they come."""

import contextlib
from typing import Any

import pymysql
from pymysql.constants import CLIENT, ER, FIELD_TYPE, SERVER_STATUS
from pymysql.cursors import SSCursor

from cell.console.table import Column, StatementError, Table
from cell.console.target import Target
from gateway import sockets

DATABASE = "app"
CONNECT_TIMEOUT_S = 10
_NAMES = {code: name.lower() for name, code in vars(FIELD_TYPE).items() if name.isupper()}
_NUMERIC = {
    *(FIELD_TYPE.DECIMAL, FIELD_TYPE.NEWDECIMAL, FIELD_TYPE.FLOAT, FIELD_TYPE.DOUBLE),
    *(FIELD_TYPE.TINY, FIELD_TYPE.SHORT, FIELD_TYPE.INT24, FIELD_TYPE.LONG, FIELD_TYPE.LONGLONG),
}


def run(target: Target, sql: str, table: Table) -> None:
    # One more than is shown, so that it is known that there are more.
    limit = f"SET SESSION sql_select_limit = {table.limits.rows + 1}"
    connection = _connect(target, init_command=limit)
    try:
        cursor = connection.cursor(SSCursor)
        cursor.execute(sql)
        _fill(cursor, table)
        while cursor.nextset():
            _fill(cursor, table)
        if connection.server_status & SERVER_STATUS.SERVER_STATUS_IN_TRANS:
            table.note("the transaction was still open and was rolled back")
    except (pymysql.err.Error, OSError) as error:
        raise StatementError(_text(error)) from error
    except BaseException:
        # Stopped or too late: the engine is told, and does not go on for nobody.
        _kill(target, connection.thread_id())
        raise
    finally:
        # Without a goodbye, before which what is left of an answer would be read to its end.
        connection._force_close()  # noqa: SLF001


def _connect(target: Target, **more: Any) -> Any:
    try:
        return _connected(target, database=DATABASE, **more)
    except pymysql.err.Error as error:
        if error.args[0] != ER.BAD_DB_ERROR:
            raise StatementError(_text(error)) from error
    # Its owner may drop it, and may want to make it anew.
    return _connected(target, **more)


def _connected(target: Target, **more: Any) -> Any:
    connection = pymysql.connect(
        defer_connect=True,
        # As cell/engines/mysql/client.py has it.
        ssl_disabled=True,
        user=target.username,
        password=target.password,
        charset="utf8mb4",
        autocommit=True,
        client_flag=CLIENT.MULTI_STATEMENTS,
        # Values as the server writes them; never a file of the cell's.
        conv={},
        local_infile=False,
        **more,
    )
    connection.connect(sockets.connect(target.socket, CONNECT_TIMEOUT_S))
    return connection


def _fill(cursor: SSCursor, table: Table) -> None:
    described = cursor.description
    if described is None:
        table.begin()
        table.changed = cursor.rowcount
        return
    table.begin(
        [Column(name, _NAMES.get(code, ""), code in _NUMERIC) for name, code, *_ in described]
    )
    # To break off an answer could undo what its statement does: the rest is read and dropped.
    while (row := cursor.fetchone()) is not None:
        table.add([_value(value) for value in row])


def _value(value: str | bytes | None) -> str | None:
    return f"0x{value.hex()}" if isinstance(value, bytes) else value


def _text(error: Exception) -> str:
    if isinstance(error, pymysql.err.Error) and len(error.args) > 1:
        return f"ERROR {error.args[0]}: {error.args[1]}"
    return str(error)


def _kill(target: Target, thread_id: int) -> None:
    with contextlib.suppress(pymysql.err.Error, OSError), _connected(target) as other:
        other.cursor().execute(f"KILL QUERY {int(thread_id)}")
