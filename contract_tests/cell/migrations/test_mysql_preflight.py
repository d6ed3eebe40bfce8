"""What is found of sources that no machine of ours has: MySQL, old and new servers, odd engines."""

import asyncio
import time
from functools import partial
from types import SimpleNamespace
from typing import Any, cast

import pytest

from cell.engines.mysql.examination import Supported
from cell.instances.hosted import HostedInstance
from cell.migrations.errors import MigrationError
from cell.migrations.mysql import preflight
from cell.migrations.mysql.facts import MySQLFacts, MySQLLog, MySQLObject, MySQLTable, databases
from cell.migrations.mysql.grants import Grants
from cell.migrations.mysql.preflight import BothSides
from cell.migrations.mysql.session import SourceSession
from cell.migrations.report import bounded

SUPPORTED = Supported(
    "10.11.18-MariaDB",
    frozenset({"innodb", "aria", "myisam", "memory"}),
    frozenset({"utf8mb4_bin", "utf8mb4_uca1400_ai_ci", "utf8mb3_general_ci", "latin1_swedish_ci"}),
)
ALL = Grants(["GRANT ALL PRIVILEGES ON *.* TO `u`@`%`"])


def found(
    database: str = "shop", storage_bytes: int = 10**9, log: MySQLLog | None = None, **facts: Any
) -> dict[str, str]:
    """The severities of the findings, by their codes."""
    known: dict[str, Any] = {
        "version": "8.0.36",
        "is_mariadb": False,
        "folds_names": False,
        "databases": ("shop",),
        "missing": False,
        "tables": (table("InnoDB"),),
        "with_key": frozenset({("shop", "t")}),
        "collations": frozenset[str](),
        "code": (),
        "grants": ALL,
    }
    size = SimpleNamespace(storage_bytes=storage_bytes)
    record = SimpleNamespace(spec=SimpleNamespace(size=size))
    instance = cast("HostedInstance", SimpleNamespace(record=record))
    given = MySQLFacts(**{**known, **facts})
    made = preflight.report(BothSides(given, SUPPORTED, instance, database, log))
    return {each.code: each.severity for each in made.findings}


def table(engine: str, rows: int = 3, size_bytes: int = 100) -> MySQLTable:
    return MySQLTable("shop", "t", "BASE TABLE", engine, rows, size_bytes)


USUAL = {"databases": "info", "mysql": "info"}


def test_a_source_without_peculiarities_has_no_findings() -> None:
    assert found() == USUAL
    assert found(version="10.6.12-MariaDB", is_mariadb=True) == {"databases": "info"}


@pytest.mark.parametrize(
    ("facts", "finding"),
    [
        ({"version": "5.1.73"}, {"older_version": "blocking"}),
        ({"version": "nonsense"}, {"older_version": "blocking"}),
        ({"folds_names": True}, {"names_by_case": "warning"}),
        ({"tables": ()}, {"empty": "warning"}),
        ({"tables": (table("FEDERATED"),)}, {"rows_elsewhere": "blocking"}),
        ({"tables": (table("ROCKSDB"),)}, {"missing_engine": "warning"}),
        ({"tables": (table("MyISAM"),)}, {"not_transactional": "warning"}),
        ({"tables": (table("MEMORY", rows=0),)}, {"not_transactional": "warning"}),
        ({"tables": (table("InnoDB", size_bytes=2**63),)}, {"too_large": "blocking"}),
        ({"with_key": frozenset()}, {"tables_without_primary_key": "info"}),
        ({"collations": frozenset({"utf8mb4_0900_ai_ci", "utf8mb4_0900_bin"})}, {}),
        ({"collations": frozenset({"utf8_general_ci", "latin1_swedish_ci"})}, {}),
        ({"collations": frozenset({"gb18030_chinese_ci"})}, {"missing_collation": "blocking"}),
        ({"collations": frozenset({"utf8mb4_ja_0900_as_cs"})}, {"missing_collation": "blocking"}),
        ({"grants": Grants([])}, {"missing_right": "blocking", "routines_not_seen": "warning"}),
        (
            {"code": (MySQLObject("routine", "shop", "p", "root@localhost", is_hidden=True),)},
            {"definers": "info", "missing_right": "blocking"},
        ),
        (
            {"code": (MySQLObject("event", "shop", "e", "root@localhost", is_hidden=False),)},
            {"definers": "info", "events": "info"},
        ),
    ],
)
def test_what_differs_is_found(facts: dict[str, Any], finding: dict[str, str]) -> None:
    assert found(**facts) == {**USUAL, **finding}


def test_a_newer_mariadb_is_warned_of() -> None:
    newer = found(version="11.8.2-MariaDB", is_mariadb=True)
    assert newer == {"databases": "info", "newer_version": "warning"}


@pytest.mark.parametrize("name", ["a\0b", "x" * 65, "x" * 10_000_000])
def test_names_that_no_server_has_are_refused(name: str) -> None:
    """Of an argument they would be a mistake of the cell's, and of a packet."""

    async def asked() -> None:
        given = (cast("Any", None), cast("Any", None), cast("Any", None), "8.0.36", 1.0)
        source = SourceSession(*given)
        source.rows = partial(_rows, source, name)  # type: ignore[method-assign]
        for each in await databases(source):
            source.send(each.encode(), 0)

    with pytest.raises(MigrationError, match="cannot be read"):
        asyncio.run(asked())


def test_no_text_of_a_source_takes_long_to_be_told() -> None:
    """All else in the cell would wait for it."""
    began = time.process_time()
    assert bounded("\x1b" + "x" * 2**26) == f" {'x' * 498}…"
    assert time.process_time() - began < 1


async def _rows(_: SourceSession, name: str, __: str) -> list[tuple[str | None, ...]]:
    return [(name,)]


@pytest.mark.parametrize(
    ("database", "facts"),
    [
        ("mysql", {"databases": ()}),
        ("Performance_Schema", {"databases": ()}),
        ("absent", {"databases": (), "missing": True}),
        ("", {"databases": ()}),
    ],
)
def test_without_a_database_there_is_nothing_to_copy(database: str, facts: dict[str, Any]) -> None:
    assert found(database, **facts)["no_database"] == "blocking"


# Of sources that are followed.

LOGS = {"log_bin": "ON", "binlog_format": "ROW", "binlog_row_image": "FULL"}
MARIADB: dict[str, Any] = {"version": "10.6.12-MariaDB", "is_mariadb": True}


def test_a_source_that_logs_its_rows_can_be_followed() -> None:
    assert found(log=MySQLLog(LOGS, ()), **MARIADB) == {"databases": "info"}
    # Versions that have no such variable log whole rows, uncompressed.
    older = MySQLLog({"log_bin": "ON", "binlog_format": "ROW", "expire_logs_days": "9"}, ())
    assert found(log=older, **MARIADB) == {"databases": "info"}


@pytest.mark.parametrize(
    ("values", "facts", "finding"),
    [
        ({"log_bin": "OFF"}, {}, {"no_binary_log": "blocking"}),
        ({"binlog_format": "MIXED"}, {}, {"binlog_format": "blocking"}),
        ({"binlog_row_image": "MINIMAL"}, {}, {"binlog_row_image": "blocking"}),
        ({"log_bin_compress": "ON"}, {}, {"log_bin_compress": "blocking"}),
        ({"binlog_expire_logs_seconds": "3600"}, {}, {"log_expires": "warning"}),
        ({"expire_logs_days": "0.5"}, {}, {"log_expires": "warning"}),
        ({"expire_logs_days": "NONSENSE"}, {}, {}),
        ({"gtid_slave_pos": "0-1-5"}, {}, {"not_logged": "warning"}),
        ({"gtid_slave_pos": "0-1-5", "log_slave_updates": "ON"}, {}, {}),
        ({}, {"version": "10.1.1-MariaDB"}, {"no_sync": "blocking"}),
        ({}, {"version": "8.0.36", "is_mariadb": False}, {"mysql": "info", "no_sync": "blocking"}),
        ({}, {"database": ""}, {"no_database": "blocking"}),
        (
            {},
            {"tables": (table("MyISAM"),)},
            {"not_transactional": "warning", "not_followed": "blocking"},
        ),
        (
            {},
            {"with_key": frozenset()},
            {"tables_without_primary_key": "info", "not_followed": "blocking"},
        ),
        (
            {},
            {"grants": Grants(["GRANT ALL PRIVILEGES ON `shop`.* TO `u`@`%`"])},
            {"missing_right": "blocking"},
        ),
    ],
)
def test_what_keeps_a_source_from_being_followed_is_found(
    values: dict[str, str], facts: dict[str, Any], finding: dict[str, str]
) -> None:
    assert found(log=MySQLLog(LOGS | values, ()), **MARIADB | facts) == {
        "databases": "info",
        **finding,
    }


def test_columns_that_are_logged_otherwise_are_found() -> None:
    assert found(log=MySQLLog(LOGS, ("shop.t",)), **MARIADB)["not_followed"] == "blocking"
