"""The instance that gets the changes of a source, in sessions of its owner and with their rights.

How far it is stands in a table of its own beside the data, and changes in the same transaction.
"""

import contextlib
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

import pymysql
from pymysql.constants import CLIENT, ER

from cell.engines.driver import Login
from cell.engines.mysql import client
from cell.engines.mysql.accounts import MARIADB_DATABASE
from cell.engines.mysql.row_values import LoggedColumn
from cell.migrations.errors import FollowError
from cell.migrations.mysql.changes import Statement, TargetTable
from cell.migrations.mysql.session import identifier
from cell.runtime.engine_files import EnginePath

ANSWER_TIMEOUT_S: Final = 6 * 3600.0
TABLE: Final = "progress"
# A row that an UPDATE finds as it should become counts; and many statements in one packet, as
# each answer that is waited for takes longer than a row.
FLAGS: Final = CLIENT.FOUND_ROWS | CLIENT.MULTI_STATEMENTS
STATEMENTS_AT_ONCE, CHARACTERS_AT_ONCE = 200, 2**20
# What the source accepted is accepted, as it is said.
ALIKE: Final = (
    "SET sql_mode = 'ALLOW_INVALID_DATES,NO_AUTO_VALUE_ON_ZERO', time_zone = '+00:00'",
    "SET check_constraint_checks = OFF, max_statement_time = 0, sql_safe_updates = OFF",
    "SET innodb_lock_wait_timeout = 30, lock_wait_timeout = 30",
)
COLUMNS: Final = """
SELECT c.TABLE_NAME, t.TABLE_TYPE, c.COLUMN_NAME, LOWER(c.DATA_TYPE), c.COLUMN_TYPE,
    c.CHARACTER_SET_NAME, COALESCE(c.CHARACTER_OCTET_LENGTH, 0), c.EXTRA, c.COLUMN_KEY
FROM information_schema.COLUMNS c JOIN information_schema.TABLES t
    ON t.TABLE_SCHEMA = c.TABLE_SCHEMA AND t.TABLE_NAME = c.TABLE_NAME
WHERE c.TABLE_SCHEMA = %s AND t.TABLE_TYPE IN ('BASE TABLE', 'SEQUENCE')
ORDER BY c.TABLE_NAME, c.ORDINAL_POSITION
"""
# A deadlock, and sessions that are ended, as for a rotation or a stop.
PASSING: Final = frozenset({ER.LOCK_DEADLOCK, ER.QUERY_INTERRUPTED, ER.SERVER_SHUTDOWN, 1927})
GENERATED: Final = ("VIRTUAL", "STORED", "PERSISTENT")
DROP_WITHIN: Final = "SET lock_wait_timeout = 5"


class HeldUpError(Exception):
    """It may work in a moment, from the position that is there then."""


class SyncTarget:
    """For one thread at a time. `database` is the one that is written, `made` that of the position.

    Raises HeldUpError, and FollowError where the instance refuses.
    """

    def __init__(
        self, socket: EnginePath, login: Callable[[], Login], database: str, made: str
    ) -> None:
        self._socket = socket
        self._login = login
        self._database = database
        self._place = f"{identifier(made)}.{TABLE}"
        self._connection: Any = None
        self._is_open = False
        self._checks_keys = True
        self._waiting: list[tuple[TargetTable, Statement]] = []
        self._waiting_characters = 0
        self.gtid = ""
        self.tables: Mapping[str, TargetTable] = {}

    def open(self) -> None:
        """From the position that is committed, and with the tables that there are."""
        self.close()
        try:
            self._connection = client.opened(*self._given, ANSWER_TIMEOUT_S, FLAGS)
        except client.FAILURES as error:
            # As while it starts, or the credential is rotated.
            raise HeldUpError(f"the instance does not take the changes: {error}") from error
        with _explained("its own tables"), client.talking(self._connection) as cursor:
            for each in ALIKE:
                cursor.execute(each)
            cursor.execute(f"SELECT gtid FROM {self._place}")  # noqa: S608 - quoted
            found = cursor.fetchone()
            self.tables = _tables(cursor, self._database)
        if found is None:
            raise FollowError("the instance does not say any more how far it is")
        self.gtid = str(found[0])
        self._checks_keys = True

    @property
    def _given(self) -> tuple[EnginePath, str, str]:
        login = self._login()
        return self._socket, login.username, login.password

    def close(self) -> None:
        """What is not committed is as if it had never been."""
        connection, self._connection, self._is_open = self._connection, None, False
        self._waiting, self._waiting_characters = [], 0
        if connection is not None:
            with contextlib.suppress(pymysql.err.Error, OSError):
                connection.close()

    def end(self) -> None:
        """From another thread, whatever the session is doing."""
        connection = self._connection
        if connection is not None:
            with (
                contextlib.suppress(*client.FAILURES, pymysql.err.Error),
                client.session(*self._given) as cursor,
            ):
                cursor.execute("KILL %s", [connection.thread_id()])

    def check_keys(self, wanted: bool) -> None:
        if wanted != self._checks_keys:
            self._send()
            with _explained("foreign_key_checks"), client.talking(self._connection) as cursor:
                cursor.execute(f"SET foreign_key_checks = {int(wanted)}")
            self._checks_keys = wanted

    def run(self, table: TargetTable, statement: Statement) -> None:
        """Soon, and before what is committed next."""
        if self._waiting_characters + len(statement.sql) > CHARACTERS_AT_ONCE:
            self._send()
        self._waiting.append((table, statement))
        self._waiting_characters += len(statement.sql)
        if len(self._waiting) >= STATEMENTS_AT_ONCE:
            self._send()

    def _send(self) -> None:
        waiting, self._waiting, self._waiting_characters = self._waiting, [], 0
        if not waiting:
            return
        self._begin()
        sql = ";".join(statement.sql for _, statement in waiting)
        # Not closed where it fails, for which it would wait for all other answers.
        cursor = self._connection.cursor()
        for number, (table, statement) in enumerate(waiting):
            with _explained(f"the table {table.name}"), client.explained():
                if number:
                    cursor.nextset()
                else:
                    cursor.execute(sql)
            if statement.rows not in {-1, cursor.rowcount}:
                raise FollowError(
                    f"a row of the table {table.name} that the source changed is not in the "
                    "instance, which was written to"
                )

    def commit(self, gtid: str) -> None:
        self._send()
        self._begin()
        with _explained("its own tables"), client.talking(self._connection) as cursor:
            cursor.execute(f"UPDATE {self._place} SET gtid = %s", [gtid])  # noqa: S608 - quoted
            cursor.execute("COMMIT")
        self.gtid, self._is_open = gtid, False

    def _begin(self) -> None:
        """Of a session that was cut off and is still at its end and its successor, one commits."""
        if self._is_open:
            return
        with _explained("its own tables"), client.talking(self._connection) as cursor:
            cursor.execute("START TRANSACTION")
            cursor.execute(f"SELECT gtid FROM {self._place} FOR UPDATE")  # noqa: S608 - quoted
            found = cursor.fetchone()
        if found is None or found[0] != self.gtid:
            raise HeldUpError("another session has gone on")
        self._is_open = True


@contextlib.contextmanager
def _explained(what: str) -> Iterator[None]:
    try:
        yield
    except (client.NotThereError, client.MySQLHeldUpError) as error:
        raise HeldUpError(f"the instance does not take the changes: {error}") from error
    except client.MySQLRefusedError as error:
        number = error.__cause__.args[0] if error.__cause__ and error.__cause__.args else 0
        if number in PASSING:
            raise HeldUpError(f"the instance does not take the changes: {error}") from error
        raise FollowError(
            f"the instance refused a change of {what} (error {number}); it was written to, or is "
            "full, or is not as the source any more"
        ) from error


def _tables(cursor: Any, database: str) -> dict[str, TargetTable]:
    cursor.execute(COLUMNS, [database])
    columns: dict[tuple[str, bool], list[LoggedColumn]] = {}
    for table, kind, name, data_type, full, charset, octets, extra, key in cursor.fetchall():
        is_generated = any(each in extra.upper() for each in GENERATED)
        given = (name, data_type, "unsigned" in full.lower(), charset, int(octets))
        is_sequence = kind == "SEQUENCE"
        found = LoggedColumn(*given, is_generated, key == "PRI")
        columns.setdefault((table, is_sequence), []).append(found)
    return {
        name: TargetTable(database, name, tuple(each), is_sequence)
        for (name, is_sequence), each in columns.items()
    }


def make(cursor: Any, made: str, gtid: str) -> None:
    """Where the position is kept, in a copy that nobody else writes to."""
    cursor.execute(f"CREATE DATABASE {identifier(made)} CHARACTER SET utf8mb4")
    place = f"{identifier(made)}.{TABLE}"
    one = "one TINYINT PRIMARY KEY CHECK (one = 1)"
    cursor.execute(f"CREATE TABLE {place} ({one}, gtid TEXT NOT NULL) ENGINE=InnoDB")
    cursor.execute(f"INSERT INTO {place} VALUES (1, %s)", [gtid])  # noqa: S608 - quoted


def is_there(cursor: Any, made: str) -> bool:
    asked = "SELECT COUNT(*) FROM information_schema.SCHEMATA WHERE SCHEMA_NAME = %s"
    cursor.execute(asked, [made])
    return bool(cursor.fetchone()[0])


def drop_copy(cursor: Any, database: str, made: str) -> None:
    """All that came, if it did; its mark goes last."""
    if not is_there(cursor, made):
        return
    cursor.execute(DROP_WITHIN)
    cursor.execute(f"DROP DATABASE IF EXISTS {identifier(database)}")
    cursor.execute(f"CREATE DATABASE {MARIADB_DATABASE}")
    cursor.execute(f"DROP DATABASE {identifier(made)}")
