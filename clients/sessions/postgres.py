"""SQL on PostgreSQL: psycopg, with the server's own text for all that JSON has no type for."""

import contextlib
import re
import time
from collections.abc import Iterator, Sequence
from typing import Any, Final

import psycopg
from psycopg import generators, pq
from psycopg.adapt import PyFormat, Transformer
from psycopg.types.json import Jsonb
from psycopg.types.string import TextLoader

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

CURSOR: Final = "menagerie_client"
CHUNK_ROWS: Final = 1000
# What a cursor may be declared for: it is asked for no more rows than are kept.
QUERY: Final = re.compile(
    r"\A(?:\s++|--[^\n]*+\n|/\*(?>.*?\*/))*+(?:select|table|values|with)\b",
    re.IGNORECASE | re.DOTALL,
)
# The types that JSON has, too; all others come as the server writes them.
NATIVE: Final = frozenset(
    {"bool", "int2", "int4", "int8", "oid", "float4", "float8", "json", "jsonb"}
)
# What a server says to a login it refuses; libpq has no code for that.
REFUSED: Final = ("password authentication failed", "is not permitted to log in")
# libpq ends where a server tells it a setting of more than 30,000 bytes, as search_path can be.
TOO_LONG: Final = 'got message type "S"'
SHORTEN: Final = (
    "a setting of its database or role is too long for clients; `menagerie credentials NAME "
    "--rotate` resets it"
)
# Connection, resources, operator's intervention, system: nothing is wrong with the statement.
NOT_THE_STATEMENT: Final = ("08", "53", "57P", "58", "XX")
COPIES: Final = {pq.ExecStatus.COPY_IN, pq.ExecStatus.COPY_OUT, pq.ExecStatus.COPY_BOTH}
ROWS: Final = {
    pq.ExecStatus.SINGLE_TUPLE,
    pq.ExecStatus.TUPLES_CHUNK,
    pq.ExecStatus.TUPLES_OK,
}


class PostgresSession(Session):
    """Values stand for `$1`, `$2`, …. Several statements without values are one transaction."""

    def __init__(self, credential: Credential, authorities: Authorities) -> None:
        super().__init__(credential, authorities)
        self._connection: psycopg.Connection[Any] | None = None
        self._files = contextlib.ExitStack()

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None
        self._files.close()

    def version(self) -> str:
        return f"PostgreSQL {self.query('SHOW server_version').rows[0][0]}"

    def query(self, statement: str, params: Sequence[Any] | None = None) -> Result:
        if "\0" in statement:
            raise errors.QueryFailed(INVALID, "a statement cannot contain the NUL character")
        connection = self._open()
        started = time.perf_counter()
        run = _Run(connection)
        try:
            answer = run.answer(statement, [_adapted(one) for one in params or ()])
            elapsed_s = time.perf_counter() - started
            run.name_types(answer)
        except psycopg.Error as error:
            raise _told(error, self.credential.host, lost=connection.closed) from error
        except KeyboardInterrupt:
            run.settle()
            raise
        finally:
            if connection.pgconn.transaction_status == pq.TransactionStatus.ACTIVE:
                # In the middle of a COPY, say: nobody knows where it stands.
                self.close()
        return answer.result(elapsed_s)

    def _open(self) -> psycopg.Connection[Any]:
        if self._connection is None or self._connection.closed:
            self.close()
            # It has to stay: a cancel request reads it anew.
            ca_file = self._files.enter_context(self._authorities.as_file())
            try:
                self._connection = _connected(self.credential, ca_file)
            except psycopg.Error as error:
                self.close()
                raise _refused(error, self.credential.host) from error
            for info in self._connection.adapters.types:
                if info.name not in NATIVE:
                    self._connection.adapters.register_loader(info.oid, TextLoader)
        return self._connection


def _connected(credential: Credential, ca_file: str) -> psycopg.Connection[Any]:
    return psycopg.connect(
        host=credential.host,
        # *.localhost does not resolve everywhere; the name is still what is verified.
        hostaddr=LOOPBACK if is_local(credential.host) else None,
        port=credential.port,
        user=credential.username,
        password=credential.password,
        dbname=credential.database or None,
        sslmode="verify-full",
        sslrootcert=ca_file,
        connect_timeout=CONNECT_TIMEOUT_S,
        application_name="menagerie",
        client_encoding="utf8",
        autocommit=True,
    )


def _refused(error: psycopg.Error, host: str) -> errors.ClientError:
    """Answer why there is no connection: in the words of who answered, if anybody did."""
    _, fatal, words = str(error).partition("FATAL:")
    if TOO_LONG in str(error):
        return errors.InstanceUnreachable(f"cannot log in to {host}: {SHORTEN}")
    if not fatal:
        return _told(error, host, lost=True)
    refused = any(one in words for one in REFUSED)
    return errors.QueryFailed(UNAUTHORIZED if refused else UNAVAILABLE, words.strip())


def _adapted(value: Any) -> Any:
    if isinstance(value, dict):
        return Jsonb(value)
    return [_adapted(one) for one in value] if isinstance(value, list) else value


def _told(error: psycopg.Error, host: str, *, lost: bool) -> errors.ClientError:
    """Answer the error in the server's own words, told apart by whose fault it is."""
    state = error.sqlstate or ""
    words = str(error).strip()
    if not state:
        return (
            errors.InstanceUnreachable(f"cannot reach {host}: {words}")
            if lost
            else errors.QueryFailed(INVALID, words)
        )
    # 08P01 is also what too few values are called.
    away = state.startswith(NOT_THE_STATEMENT) and state != "08P01"
    return errors.QueryFailed(UNAVAILABLE if away else INVALID, words)


class _Run:
    """One call of `query`, by libpq's own calls, which take rows as they come."""

    def __init__(self, connection: psycopg.Connection[Any]) -> None:
        self._connection = connection
        self._pgconn = connection.pgconn

    def answer(self, statement: str, params: list[Any]) -> QueryResult:
        is_free = self._pgconn.transaction_status == pq.TransactionStatus.IDLE
        # In a transaction of the user's own a cursor that is refused would end it.
        if QUERY.match(statement) and is_free:
            found = self._by_cursor(statement, params)
            if found is not None:
                return found
        return self._collect(statement, params)

    def name_types(self, answer: QueryResult) -> None:
        """Put names in the place of the numbers of types that were made in this database."""
        for number, kind in enumerate(answer.column_types):
            ready = self._pgconn.transaction_status != pq.TransactionStatus.INERROR
            if kind.isdigit() and ready:
                found = self._collect(f"SELECT {int(kind)}::regtype::text")
                answer.column_types[number] = str(found.rows[0][0])

    def _by_cursor(self, statement: str, params: list[Any]) -> QueryResult | None:
        """Ask for no more rows than are kept; None where no cursor can be had, nothing was run.

        To break a plain answer off instead would undo what the statement does.
        """
        self._collect("BEGIN")
        try:
            if not self._declared(statement.rstrip().rstrip(";"), params):
                self._roll_back()
                return None
            answer = self._collect(f"FETCH FORWARD {ROWS_MAX + 1} FROM {CURSOR}")
        except (psycopg.Error, KeyboardInterrupt):
            self.settle()
            self._roll_back()
            raise
        self._collect("COMMIT")
        return answer

    def _declared(self, query: str, params: Sequence[Any]) -> bool:
        try:
            self._collect(f"DECLARE {CURSOR} NO SCROLL CURSOR FOR {query}", params, alone=True)
        except psycopg.Error:
            return False
        return True

    def _roll_back(self) -> None:
        if not self._connection.closed:
            self._collect("ROLLBACK")

    def settle(self) -> None:
        """Hear out a statement that was cancelled, so that the session can go on."""
        with contextlib.suppress(psycopg.Error):
            for _ in self._results():
                pass

    def _collect(
        self, statement: str, params: Sequence[Any] = (), *, alone: bool = False
    ) -> QueryResult:
        """Run it; answer its last result. With `alone` a second statement in it is refused."""
        self._send(statement, params, alone=alone)
        answer, fresh, failure = QueryResult(), True, None
        for result in self._results():
            if result.status in ROWS:
                if fresh:
                    reader = Transformer(self._connection)
                    reader.set_pgresult(result)
                    answer = QueryResult(*_columns(self._connection, result))
                reader.set_pgresult(result, set_loaders=False)
                for row in reader.load_rows(0, result.ntuples, list):
                    answer.add(row)
                fresh = result.status == pq.ExecStatus.TUPLES_OK
            elif result.status == pq.ExecStatus.COMMAND_OK:
                answer, fresh = QueryResult(changed=result.command_tuples or 0), True
            elif result.status in COPIES:
                raise errors.QueryFailed(
                    INVALID, "COPY from STDIN and to STDOUT needs psql: `menagerie connect`"
                )
            elif result.status != pq.ExecStatus.EMPTY_QUERY:
                failure = psycopg.errors.error_from_result(result, encoding="utf-8")
        if failure is not None:
            raise failure
        return answer

    def _send(self, statement: str, params: Sequence[Any], *, alone: bool) -> None:
        if params or alone:
            writer = Transformer(self._connection)
            values = writer.dump_sequence(params, [PyFormat.AUTO] * len(params))
            self._pgconn.send_query_params(
                statement.encode(), values, param_types=writer.types, param_formats=writer.formats
            )
        else:
            self._pgconn.send_query(statement.encode())
        self._pgconn.set_chunked_rows_mode(CHUNK_ROWS)
        self._connection.wait(generators.send(self._pgconn))

    def _results(self) -> Iterator[pq.abc.PGresult]:
        while True:
            # Waits where Ctrl-C is heard, and then has the server cancel the statement.
            result = self._connection.wait(generators.fetch(self._pgconn))
            if result is None:
                return
            yield result


def _columns(
    connection: psycopg.Connection[Any], result: pq.abc.PGresult
) -> tuple[list[str], list[str]]:
    names, types = [], []
    for number in range(result.nfields):
        names.append((result.fname(number) or b"").decode(errors="replace"))
        oid = result.ftype(number)
        known = connection.adapters.types.get(oid)
        kind = known.regtype if known else str(oid)
        types.append(f"{kind}[]" if known and oid == known.array_oid else kind)
    return names, types
