"""A MariaDB that is followed and sends what nobody follows: the sync ends, and nothing is left."""

import contextlib
import re
import socket
import struct
import threading
import time
import zlib
from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cell.engines.mysql.row_events import ROWS, RowsEvent, TableMap
from cell.engines.mysql.row_values import LoggedColumn, MalformedEventError
from cell.migrations.mysql import changes
from cell.migrations.mysql.changes import TargetTable
from contract_tests.cell.migrations import lying_proxy, mariadb_server
from contract_tests.cell.migrations.lying_proxy import LyingProxy, lying, packet
from contract_tests.cell.migrations.mariadb_server import PASSWORD, MariaDBDatabase
from contract_tests.cell.migrations.migration_calls import (
    CONNECTION,
    begun,
    connect,
    observed,
    path_of,
    status_is,
)
from contract_tests.cell.migrations.sync_calls import completed, level
from contract_tests.cell.migrations.test_files import made
from contract_tests.cell.migrations.test_mariadb_sources import unchanged
from contract_tests.cell.migrations.test_mariadb_sync import assert_equal, synced
from contract_tests.cell.migrations.test_mysql_dumps import rows
from contract_tests.cell.rig import Rig, until

pytestmark = [pytest.mark.nightly, pytest.mark.timeout(300)]
BEGINS = b"SET @slave_connect_state"
OK = b"\0\0\0\2\0\0\0"
# What a server says of its own log first: its checksums.
FORMAT = b"\x04\0" + b"10.11".ljust(50, b"\0") + bytes(5) + b"\x13" + bytes(220) + b"\x01"
XID = (16, bytes(8))


@pytest.fixture(scope="module")
def target_id(migrating: Rig) -> str:
    return made(migrating, "mariadb")


@pytest.fixture
def shop(mariadb_shop: MariaDBDatabase) -> MariaDBDatabase:
    mariadb_shop.ask(
        "CREATE TABLE t (n INT PRIMARY KEY, t TEXT)",
        "CREATE TABLE large (n INT PRIMARY KEY, t LONGBLOB)",
        "INSERT INTO t VALUES (1, 'a'), (2, 'b')",
    )
    return mariadb_shop


def ended(rig: Rig, instance_id: str, migration_id: str, told: str) -> None:
    seen = status_is(rig, instance_id, migration_id, "failed")
    assert re.search(told, seen["reason"]), seen["reason"]
    assert PASSWORD not in str(seen)
    unchanged(rig, instance_id)


STATEMENTS = {
    "a table is changed": (["ALTER TABLE t ADD COLUMN x INT"], "not followed: ALTER TABLE t ADD"),
    "by another database": (
        ["CREATE DATABASE IF NOT EXISTS elsewhere", "USE elsewhere", "DROP TABLE {name}.t"],
        "not followed: DROP TABLE",
    ),
    "a table is new": (["CREATE TABLE u (n INT)"], "not followed: CREATE TABLE"),
    "a trigger is new": (
        ["CREATE TRIGGER r BEFORE INSERT ON t FOR EACH ROW SET NEW.t = ''"],
        "not followed: CREATE DEFINER",
    ),
    "all of it is dropped": (["DROP DATABASE {name}"], "not followed: DROP DATABASE|no database"),
    "a statement is logged": (
        ["SET SESSION binlog_format = STATEMENT", "UPDATE t SET t = 'c'"],
        "not followed: UPDATE t SET",
    ),
    "not all columns": (
        ["SET SESSION binlog_row_image = MINIMAL", "UPDATE t SET t = 'c'"],
        "binlog_row_image must be FULL",
    ),
    "a huge row": (
        ["INSERT INTO large VALUES (7, REPEAT('x', 15728640))"],
        "more than 15 MiB",
    ),
    "XA": (
        [
            *("XA START 'x'", "INSERT INTO t VALUES (8, '')", "XA END 'x'"),
            *("XA PREPARE 'x'", "XA COMMIT 'x'"),
        ],
        "XA transactions",
    ),
}


@pytest.mark.parametrize("name", list(STATEMENTS))
def test_what_is_not_followed_ends_the_sync(
    migrating: Rig, target_id: str, shop: MariaDBDatabase, name: str
) -> None:
    statements, told = STATEMENTS[name]
    shop.server.ask("SET GLOBAL max_allowed_packet = 67108864")
    migration_id = synced(migrating, target_id, shop)
    shop.ask(*(each.format(name=shop.name) for each in statements))
    ended(migrating, target_id, migration_id, told)


def test_what_concerns_others_is_passed_over(migrating: Rig, shop: MariaDBDatabase) -> None:
    instance_id = made(migrating, "mariadb")
    other = shop.server.new_database()
    migration_id = synced(migrating, instance_id, shop)
    other.ask(
        "CREATE TABLE app (n INT) ENGINE=MyISAM",
        "INSERT INTO app VALUES (1)",
        "CREATE TABLE mysql.of_a_hostile_source (n INT)",
        "INSERT INTO mysql.of_a_hostile_source VALUES (1)",
        "SET SESSION binlog_format = STATEMENT",
        "UPDATE app SET n = 2",
        "DROP TABLE mysql.of_a_hostile_source",
        "CREATE OR REPLACE USER passing@localhost",
        "DROP USER passing@localhost",
        f"DROP DATABASE {other.name}",
    )
    shop.ask(
        "ANALYZE TABLE t",
        "CREATE TEMPORARY TABLE passing (n INT)",
        "DROP TEMPORARY TABLE passing",
        "INSERT INTO t VALUES (3, 'c')",
        "TRUNCATE t",
        "INSERT INTO t VALUES (3, 'd')",
    )
    until(lambda: rows(migrating, instance_id, "SELECT * FROM t") == [(3, "d")], "it follows")
    level(migrating, instance_id, migration_id)
    completed(migrating, instance_id, migration_id)
    assert_equal(migrating, instance_id, shop, ("t",))
    migrating.action(instance_id, "erase")


def test_who_writes_meanwhile_is_told(migrating: Rig, shop: MariaDBDatabase) -> None:
    instance_id = made(migrating, "mariadb")
    migration_id = synced(migrating, instance_id, shop)
    rows(migrating, instance_id, "DELETE FROM t WHERE n = 1")
    shop.ask("UPDATE t SET t = 'changed' WHERE n = 1")
    ended(migrating, instance_id, migration_id, "a row of the table t .* is not in the instance")
    migrating.action(instance_id, "erase")


# A server that makes events as it likes.


def event(kind: int, body: bytes, *, flags: int = 0, length: int | None = None) -> bytes:
    size = 19 + len(body) + 4 if length is None else length
    whole = struct.pack("<IBIIIH", 0, kind, 7, size, 10**6, flags) + body
    return whole + zlib.crc32(whole).to_bytes(4, "little")


def begins(number: int = 10**6, flags: int = 0, domain: int = 0) -> tuple[int, bytes]:
    return 162, struct.pack("<QIB", number, domain, flags) + bytes(6)


def table_map(database: bytes, name: bytes, types: bytes, metadata: bytes) -> tuple[int, bytes]:
    named = bytes((len(database),)) + database + b"\0" + bytes((len(name),)) + name + b"\0"
    counted = bytes((len(types),)) + types + bytes((len(metadata),)) + metadata
    return 19, (5).to_bytes(6, "little") + b"\1\0" + named + counted + bytes(1)


def written(columns: int, content: bytes, kind: int = 23) -> tuple[int, bytes]:
    head = (5).to_bytes(6, "little") + b"\1\0" + bytes((columns,))
    return kind, head + b"\xff" * ((columns + 7) // 8) + content


def query(schema: bytes, statement: bytes) -> tuple[int, bytes]:
    head = struct.pack("<IIBHH", 1, 0, len(schema), 0, 0)
    return 2, head + schema + b"\0" + statement


ROW = struct.pack("<BI", 0, 9) + b"\1\0x"
TYPES_OF_T = (b"\x03\xfc", b"\x02")
Made = list[tuple[int, bytes]]


def made_up(name: bytes) -> dict[str, tuple[Made, str]]:
    """By a source whose database has that name."""
    t = table_map(name, b"t", *TYPES_OF_T)
    return {
        "for the server": (
            [begins(flags=1), query(b"mysql", b"DELETE FROM global_priv; DROP TABLE %s.t" % name)],
            "not followed: DELETE",
        ),
        "hidden": (
            [begins(flags=1), query(b"", b"/*!99999 GRANT */ DROP DATABASE `%s`" % name)],
            "not followed: *DROP",
        ),
        "no statement": ([begins(flags=1), (2, b"")], "cannot be read"),
        "rows of nothing": ([begins(), written(2, ROW)], "not named"),
        "rows without an end": ([begins(), t, written(2, ROW + b"\0\1")], "cannot be read"),
        "other columns": ([begins(), table_map(name, b"t", b"\x03\x03", b"")], "other columns"),
        "an unknown type": ([begins(), table_map(name, b"t", b"\x03\x63", b"")], "number 99"),
        "an unknown table": ([begins(), table_map(name, b"u", *TYPES_OF_T)], "not there"),
        "twice the row": ([begins(), t, written(2, ROW), written(2, ROW), XID], "error 1062"),
        "no such row": ([begins(), t, written(2, ROW, 25), XID], "is not in the instance"),
        "outside": ([t], "in no transaction"),
        "one in another": ([begins(), begins()], "begins within another"),
        "a file": ([begins(), (17, bytes(30))], "number 17"),
        "many domains": (
            [each for domain in range(502) for each in (begins(domain=domain), XID)],
            "too many domains",
        ),
    }


def sends(*made_events: bytes) -> lying_proxy.Answer:
    def answer(proxy: LyingProxy, near: socket.socket) -> None:
        near.sendall(packet(OK, 1))
        first = event(4, struct.pack("<Q", 4) + b"log.000001"), event(15, FORMAT)
        for number, each in enumerate([*first, *made_events], 1):
            near.sendall(packet(b"\0" + each, number))
        proxy.ended.wait(lying_proxy.WAIT_S)

    return answer


@contextlib.contextmanager
def lied_to(
    rig: Rig, instance_id: str, shop: MariaDBDatabase, answer: lying_proxy.Answer
) -> Iterator[str]:
    with lying(shop.server.port, BEGINS, answer) as proxy:
        uri = shop.as_user(mariadb_server.PLAIN).replace(str(shop.server.port), str(proxy.port))
        migration_id = begun(rig, instance_id, CONNECTION, "copy_and_sync")
        connect(rig, instance_id, migration_id, shop, uri=uri, tls="off", ca_pem=None)
        yield migration_id


@pytest.mark.parametrize("name", list(made_up(b"")))
def test_what_a_source_makes_up_ends_the_sync(
    migrating: Rig, target_id: str, shop: MariaDBDatabase, name: str
) -> None:
    given, told = made_up(shop.name.encode())[name]
    answer = sends(*(event(*each) for each in given))
    with lied_to(migrating, target_id, shop, answer) as migration_id:
        ended(migrating, target_id, migration_id, told)


def test_rows_of_the_server_are_passed_over(
    migrating: Rig, target_id: str, shop: MariaDBDatabase
) -> None:
    """Of whatever form they are; what follows them is taken."""
    theirs = table_map(b"mysql", b"global_priv", b"\xfe\xfe\xfc", b"\xfe\x3c\xfe\x3c\x04")
    foreign = [begins(1), theirs, written(3, b"nonsense"), XID]
    own = table_map(shop.name.encode(), b"t", *TYPES_OF_T)
    given = [*foreign, begins(2), own, written(2, ROW), XID]
    answer = sends(*(event(*each) for each in given))
    with lied_to(migrating, target_id, shop, answer) as migration_id:
        there = [(1, "a"), (2, "b"), (9, "x")]
        asked = "SELECT * FROM t ORDER BY n"
        status_is(migrating, target_id, migration_id, "syncing")
        until(lambda: rows(migrating, target_id, asked) == there, "it is taken")
        cancelled(migrating, target_id, migration_id)


def cancelled(rig: Rig, instance_id: str, migration_id: str) -> None:
    rig.act("DELETE", path_of(instance_id, migration_id))
    status_is(rig, instance_id, migration_id, "cancelled")
    unchanged(rig, instance_id)


BROKEN = {
    "a checksum": (event(*begins())[:-1] + b"\x07", "checksum does not fit"),
    "a length": (event(*begins(), length=7), "cannot be read"),
    "nothing": (b"", "cannot be read"),
}


@pytest.mark.parametrize("name", list(BROKEN))
def test_a_stream_that_is_damaged_ends_the_sync(
    migrating: Rig, target_id: str, shop: MariaDBDatabase, name: str
) -> None:
    content, told = BROKEN[name]
    with lied_to(migrating, target_id, shop, sends(content)) as migration_id:
        ended(migrating, target_id, migration_id, told)


def test_a_stream_that_is_cut_off_is_begun_again(
    migrating: Rig, target_id: str, shop: MariaDBDatabase
) -> None:
    """In the middle of a transaction, of which nothing stays."""
    own = table_map(shop.name.encode(), b"t", *TYPES_OF_T)
    whole = [event(*each) for each in (begins(), own, written(2, ROW))]

    def cut(proxy: LyingProxy, near: socket.socket) -> None:
        sent = threading.Thread(target=sends(*whole), args=(proxy, near), daemon=True)
        sent.start()
        time.sleep(1)
        near.shutdown(socket.SHUT_RDWR)

    with lied_to(migrating, target_id, shop, cut) as migration_id:
        status_is(migrating, target_id, migration_id, "syncing")
        until(lambda: observed(migrating, target_id, migration_id)["reason"], "it is told")
        assert rows(migrating, target_id, "SELECT n FROM t ORDER BY n") == [(1,), (2,)]
        cancelled(migrating, target_id, migration_id)


# What reads events, alone.

COLUMNS = (
    LoggedColumn("a`b", "int", False, None, 0, False, True),
    LoggedColumn("t", "text", False, "utf8mb4", 99, False, False),
    LoggedColumn("d", "decimal", False, None, 0, False, False),
    LoggedColumn("m", "datetime", False, None, 0, False, False),
    LoggedColumn("z", "time", False, None, 0, False, False),
    LoggedColumn("e", "enum", False, None, 0, False, False),
)
TYPES = (b"\x03\xfc\xf6\x12\x13\xfe", b"\x02\x0a\x03\x06\x02\xf7\x01")
LITERAL = re.compile(r"(NULL|-?\d+(\.\d+)?(e[+-]\d+)?|(_\w+ )?x'[0-9a-f]*'|'[-0-9:. ]+')", re.ASCII)
TABLE = TargetTable("app", "t", COLUMNS, is_sequence=False)


@given(body=st.binary(max_size=200), kind=st.sampled_from(sorted(ROWS)))
def test_no_event_is_more_than_values(body: bytes, kind: int) -> None:
    logged = TableMap.parse(table_map(b"d", b"t", *TYPES)[1])
    logged.check(COLUMNS)
    head = bytes(8) + b"\x06" + b"\x3f" * (2 if kind == 24 else 1)
    try:
        found = list(RowsEvent.parse(kind, head + body).changes(logged, COLUMNS))
        list(changes.statements(TABLE, found))
    except MalformedEventError:
        return
    for change in found:
        for each in (*change.before, *change.after):
            assert LITERAL.fullmatch(each), each


@given(body=st.binary(max_size=100), kind=st.integers(0, 255))
def test_no_event_breaks_who_reads_it(body: bytes, kind: int) -> None:
    for read in (TableMap.parse, TableMap.names, lambda each: RowsEvent.parse(kind, each)):
        with contextlib.suppress(MalformedEventError):
            read(body)
