"""SQL on MariaDB and MySQL: PyMySQL, which reads rows as they come."""

import contextlib
import json
import re
import socket
import time
from collections.abc import Sequence
from typing import Any, Final

import pymysql
from pymysql.constants import CLIENT, ER, FIELD_TYPE
from pymysql.cursors import SSCursor

from clients import errors
from clients.credentials import Credential
from clients.hosts import LOOPBACK, is_local
from clients.sessions.session import (
    CONNECT_TIMEOUT_S,
    INVALID,
    ROWS_MAX,
    UNAUTHORIZED,
    UNAVAILABLE,
    QueryResult,
    Result,
    Session,
)
from clients.transport import Authorities

PREPARED: Final = "menagerie_client"
BINARY: Final = 63
INTEGERS: Final = {
    FIELD_TYPE.TINY: "TINYINT",
    FIELD_TYPE.SHORT: "SMALLINT",
    FIELD_TYPE.INT24: "MEDIUMINT",
    FIELD_TYPE.LONG: "INT",
    FIELD_TYPE.LONGLONG: "BIGINT",
    FIELD_TYPE.YEAR: "YEAR",
}
TEXTS: Final = {
    FIELD_TYPE.VAR_STRING: ("VARCHAR", "VARBINARY"),
    FIELD_TYPE.STRING: ("CHAR", "BINARY"),
    FIELD_TYPE.TINY_BLOB: ("TINYTEXT", "TINYBLOB"),
    FIELD_TYPE.BLOB: ("TEXT", "BLOB"),
    FIELD_TYPE.MEDIUM_BLOB: ("MEDIUMTEXT", "MEDIUMBLOB"),
    FIELD_TYPE.LONG_BLOB: ("LONGTEXT", "LONGBLOB"),
}
OTHERS: Final = {code: name for name, code in vars(FIELD_TYPE).items() if name.isupper()} | {
    FIELD_TYPE.NEWDECIMAL: "DECIMAL"
}
# The types that JSON has, too; all others come as the server writes them.
DECODERS: Final = dict.fromkeys(INTEGERS, int) | {
    FIELD_TYPE.FLOAT: float,
    FIELD_TYPE.DOUBLE: float,
    FIELD_TYPE.JSON: json.loads,
}
CALL: Final = re.compile(
    r"\A(?:\s++|--[^\n]*+\n|#[^\n]*+\n|/\*(?>.*?\*/))*+call\b", re.IGNORECASE | re.DOTALL
)
# Too many connections, going down, over a quota: nothing is wrong with the statement.
NOT_THE_STATEMENT: Final = {
    ER.CON_COUNT_ERROR, ER.SERVER_SHUTDOWN, ER.USER_LIMIT_REACHED, ER.TOO_MANY_USER_CONNECTIONS
}  # fmt: skip
# MariaDB's word for a connection that is no more; PyMySQL has no name for it.
KILLED: Final = 1927
# The client library's own errors have these numbers.
OF_THE_CLIENT: Final = range(2000, 3000)


class MysqlSession(Session):
    """Values stand for `?`. Ctrl-C has the server stop, and costs the connection with its state."""

    def __init__(self, credential: Credential, authorities: Authorities) -> None:
        super().__init__(credential, authorities)
        self._connection: Any = None
        self._number = 0

    def close(self) -> None:
        if self._connection is not None:
            # Without a goodbye, before which what is left of an answer would be read to its end.
            self._connection._force_close()  # noqa: SLF001  there is no public way
            self._connection = None

    def version(self) -> str:
        name = str(self.query("SELECT VERSION()").rows[0][0])
        return f"MariaDB {name.partition('-')[0]}" if "MariaDB" in name else f"MySQL {name}"

    def query(self, statement: str, params: Sequence[Any] | None = None) -> Result:
        connection = self._open()
        try:
            started = time.perf_counter()
            cursor = connection.cursor(_Cursor)
            if params:
                statement = _prepare(connection, cursor, statement, params)
            answer = _answer(cursor, statement)
        except (pymysql.err.Error, OSError) as error:
            told = _told(error, self.credential.host)
            if isinstance(told, errors.InstanceUnreachable) or error.args[:1] == (KILLED,):
                self.close()
            raise told from error
        except BaseException:
            # The server would go on for nobody.
            self._kill()
            self.close()
            raise
        return answer.result(time.perf_counter() - started)

    def _open(self) -> Any:
        if self._connection is None:
            # One more than is kept, so that it is known that there are more.
            limit = f"SET SESSION sql_select_limit = {ROWS_MAX + 1}"
            try:
                connection = self._connected(init_command=limit)
                # What the gateway greets with is not the connection's number.
                self._number = int(_answer(connection.cursor(_Cursor), NUMBER).rows[0][0])
            except (pymysql.err.Error, OSError) as error:
                # In the middle of a session it is a privilege that lacks, not the password.
                if error.args[:1] == (ER.ACCESS_DENIED_ERROR,):
                    raise errors.QueryFailed(UNAUTHORIZED, str(error.args[1])) from error
                raise _told(error, self.credential.host) from error
            self._connection = connection
        return self._connection

    def _connected(self, **more: Any) -> Any:
        credential = self.credential
        connection = pymysql.connect(
            host=credential.host,
            user=credential.username,
            password=credential.password,
            database=credential.database or None,
            ssl=self._authorities.context(),
            charset="utf8mb4",
            autocommit=True,
            client_flag=CLIENT.MULTI_STATEMENTS,
            conv=_converters(),
            local_infile=False,
            program_name="menagerie",
            defer_connect=True,
            read_timeout=CONNECT_TIMEOUT_S,
            **more,
        )
        # *.localhost does not resolve everywhere; the name is still what is verified.
        address = LOOPBACK if is_local(credential.host) else credential.host
        plain = socket.create_connection((address, credential.port), CONNECT_TIMEOUT_S)
        plain.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        connection.connect(plain)
        # From here on a statement may run for as long as it needs.
        connection._read_timeout = None  # noqa: SLF001  there is no public way
        return connection

    def _kill(self) -> None:
        if self._connection is None or not self._number:
            return
        with contextlib.suppress(pymysql.err.Error, OSError):
            other = self._connected()
            other.cursor().execute(f"KILL QUERY {self._number}")
            other.close()


NUMBER: Final = "SELECT CONNECTION_ID()"


def _converters() -> dict[Any, Any]:
    """Answer how values are read, and, under Python's types, how they are written."""
    return {**pymysql.converters.encoders, **DECODERS}


class _Cursor(SSCursor):  # type: ignore[misc]  # PyMySQL has no types
    def kinds(self) -> list[str]:
        """Answer the columns' SQL types; the server tells texts from bytes by the character set."""
        found = []
        for one in self._result.fields:
            if one.type_code in TEXTS:
                found.append(TEXTS[one.type_code][one.charsetnr == BINARY])
            else:
                found.append(INTEGERS.get(one.type_code) or OTHERS.get(one.type_code, ""))
        return found


def _prepare(connection: Any, cursor: Any, statement: str, params: Sequence[Any]) -> str:
    """Have the server prepare it, so that it tells what is a `?`; answer what runs it."""
    names = [f"@{PREPARED}_{number}" for number in range(1, len(params) + 1)]
    values = [
        json.dumps(one, ensure_ascii=False) if isinstance(one, (dict, list)) else one
        for one in params
    ]
    settings = [
        f"{name} = {connection.escape(value)}" for name, value in zip(names, values, strict=True)
    ]
    cursor.execute(f"PREPARE {PREPARED} FROM {connection.escape(statement)}")
    cursor.execute(f"SET {', '.join(settings)}")
    return f"EXECUTE {PREPARED} USING {', '.join(names)}"


def _answer(cursor: Any, statement: str) -> QueryResult:
    """Run it and answer its last result; the mere end of a CALL is none."""
    cursor.execute(statement)
    answer = _read(cursor)
    while cursor.nextset():
        last = _read(cursor)
        if last.columns or not (answer.columns and CALL.match(statement)):
            answer = last
    return answer


def _read(cursor: Any) -> QueryResult:
    if cursor.description is None:
        return QueryResult(changed=cursor.rowcount)
    answer = QueryResult([str(one[0]) for one in cursor.description], cursor.kinds())
    # To break off an answer could undo what its statement does: the rest is read and dropped.
    while (row := cursor.fetchone()) is not None:
        answer.add(row)
    return answer


def _told(error: Exception, host: str) -> errors.ClientError:
    """Answer the error in the server's own words, told apart by whose fault it is."""
    number, words = (*error.args, "")[:2] if len(error.args) > 1 else (0, str(error))
    if not isinstance(error, pymysql.err.Error) or not number or number in OF_THE_CLIENT:
        return errors.InstanceUnreachable(f"cannot reach {host}: {words or error}")
    status = UNAVAILABLE if number in NOT_THE_STATEMENT else INVALID
    return errors.QueryFailed(status, f"{words} ({number})")
