"""Running SQL on a PostgreSQL instance: libpq's own calls, which take rows as they come."""

import contextlib
import re
import select
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psycopg
from psycopg import postgres, pq

from cell.console.table import TOO_MUCH, Column, StatementError, Table
from cell.console.target import Target
from cell.runtime import relay
from cell.runtime.relay import LimitedRelay

DATABASE = "app"
CONNECT_TIMEOUT_S = 10
SETTINGS = "-c client_connection_check_interval=1s -c client_encoding=utf8"
CURSOR = b"menagerie_console"
HAS_WRITTEN = b"SELECT pg_catalog.pg_current_xact_id_if_assigned() IS NOT NULL"
# What comes of a server, and not of the way to it.
SAID = "FATAL:"
CHANGED = (
    'the password of "{}" was changed with SQL, but only the credential is valid; its password is'
    " restored within seconds: try again then"
)
NUMERIC = {"int2", "int4", "int8", "float4", "float8", "numeric", "oid", "money"}
# Each comment ends where it first may: else a script of some comments has millions of readings.
QUERY = re.compile(
    rb"\A(?:\s++|--[^\n]*+\n|/\*(?>.*?\*/))*+(?:select|table|values|with)\b",
    re.IGNORECASE | re.DOTALL,
)
# In libpq's words; those of the engine begin with a severity.
_NO_MEMORY = ("out of memory", "cannot allocate memory")
_COPIES = (pq.ExecStatus.COPY_IN, pq.ExecStatus.COPY_OUT, pq.ExecStatus.COPY_BOTH)


def run(target: Target, sql: str, table: Table) -> None:
    if "\0" in sql:
        raise StatementError("a statement cannot contain a NUL character")
    with relay.opened_beside(Path(target.socket)) as opened:
        connection = _connect(target, opened)
        _run(connection, sql, table)


def _run(connection: psycopg.Connection[Any], sql: str, table: Table) -> None:
    connection.add_notice_handler(
        lambda told: table.note(f"{told.severity}: {told.message_primary}")
    )
    session = _Session(connection.pgconn, table)
    try:
        session.run(sql.encode())
    except psycopg.Error as error:
        raise StatementError(_text(str(error))) from error
    except BaseException:
        # Stopped or too late: the engine is told, and does not go on for nobody.
        if session.is_busy:
            with contextlib.suppress(psycopg.Error):  # one that ends itself hears nothing
                # The one that lets the relay's thread run meanwhile.
                connection.cancel_safe(timeout=CONNECT_TIMEOUT_S)
        raise
    finally:
        connection.close()


def _connect(target: Target, opened: LimitedRelay) -> psycopg.Connection[Any]:
    port = int(Path(target.socket).suffix.removeprefix("."))
    try:
        return psycopg.connect(
            host=str(opened.folder),
            port=port,
            user=target.username,
            password=target.password,
            dbname=DATABASE,
            options=SETTINGS,
            autocommit=True,
            connect_timeout=CONNECT_TIMEOUT_S,
            application_name="console",
            # Who listens there must not be told the password itself.
            require_auth="scram-sha-256",
            sslmode="disable",
            gssencmode="disable",
        )
    except psycopg.OperationalError as error:
        if opened.foreign:
            raise StatementError(CHANGED.format(target.username)) from error
        if SAID not in str(error):
            raise ConnectionError("it does not accept connections") from error
        raise StatementError(str(error)) from error


class _Session:
    def __init__(self, pgconn: pq.abc.PGconn, table: Table) -> None:
        self._pgconn = pgconn
        self._table = table

    @property
    def is_busy(self) -> bool:
        return self._pgconn.transaction_status == pq.TransactionStatus.ACTIVE

    def run(self, sql: bytes) -> None:
        if not (QUERY.match(sql) and self._run_with_cursor(sql)):
            self._fill(sql)
        if self._pgconn.transaction_status != pq.TransactionStatus.IDLE:
            self._table.note("the transaction was still open and was rolled back")

    def _run_with_cursor(self, sql: bytes) -> bool:
        """One query, of which the engine makes no more rows than are shown.

        False where it is no such query; nothing was run then. To break off an answer instead
        would roll back what its statement did.
        """
        self._do(b"BEGIN")
        body = sql.rstrip().rstrip(b";")
        declared = self._declare(b"DECLARE %s NO SCROLL CURSOR FOR %s" % (CURSOR, body))
        if not declared:
            self._do(b"ROLLBACK")
            self._table.notes.clear()
            return False
        self._fill(b"FETCH FORWARD %d FROM %s" % (self._table.limits.rows + 1, CURSOR))
        self._table.message = ""
        if self._table.truncated and self._has_written():
            # By its functions: what it does is done whole, as where nobody limits its rows.
            self._do(b"MOVE FORWARD ALL FROM %s" % CURSOR)
        self._do(b"COMMIT")
        return True

    def _has_written(self) -> bool:
        self._pgconn.send_query(HAS_WRITTEN)
        told = []
        for result in self._results():
            _check(result)
            told.append(result.get_value(0, 0))
        return told == [b"t"]

    def _declare(self, statement: bytes) -> bool:
        # With its parameters apart, even if there are none, a message holds one statement.
        self._pgconn.send_query_params(statement, [])
        # All are taken, as nothing else can be sent before.
        told = [result.status for result in self._results()]
        return told == [pq.ExecStatus.COMMAND_OK]

    def _do(self, statement: bytes) -> None:
        self._pgconn.send_query(statement)
        for result in self._results():
            _check(result)

    def _fill(self, sql: bytes) -> None:
        """Several statements are one message, and so one transaction."""
        self._pgconn.send_query(sql)
        self._pgconn.set_single_row_mode()
        fresh = True
        for result in self._results():
            _check(result)
            if result.status in {pq.ExecStatus.SINGLE_TUPLE, pq.ExecStatus.TUPLES_OK}:
                if fresh:
                    self._table.begin(_columns(result))
                for number in range(result.ntuples):
                    self._table.add(_row(result, number))
                fresh = result.status == pq.ExecStatus.TUPLES_OK
            else:
                self._table.begin()
            if result.status != pq.ExecStatus.SINGLE_TUPLE:
                self._table.message = (result.command_status or b"").decode()
                if not self._table.columns:
                    self._table.changed = result.command_tuples

    def _results(self) -> Iterator[pq.abc.PGresult]:
        """Waits where a signal is heard, which it is not inside libpq."""
        while True:
            while self._pgconn.is_busy():
                select.select([self._pgconn.socket], [], [])
                self._pgconn.consume_input()
            result = self._pgconn.get_result()
            if result is None:
                return
            yield result


def _check(result: pq.abc.PGresult) -> None:
    if result.status in _COPIES:
        raise StatementError("COPY FROM STDIN and COPY TO STDOUT need another client, such as psql")
    if result.status in {pq.ExecStatus.FATAL_ERROR, pq.ExecStatus.BAD_RESPONSE}:
        told = (result.error_message or b"").decode(errors="replace")
        raise StatementError(_text(told.rstrip()))


def _text(told: str) -> str:
    return TOO_MUCH if told.startswith(_NO_MEMORY) else told


def _columns(result: pq.abc.PGresult) -> list[Column]:
    found = []
    for number in range(result.nfields):
        known = postgres.types.get(result.ftype(number))
        kind = known.name if known else ""
        name = (result.fname(number) or b"").decode(errors="replace")
        found.append(Column(name, kind, kind in NUMERIC))
    return found


def _row(result: pq.abc.PGresult, number: int) -> list[str | None]:
    values = (result.get_value(number, column) for column in range(result.nfields))
    return [None if value is None else value.decode(errors="replace") for value in values]
