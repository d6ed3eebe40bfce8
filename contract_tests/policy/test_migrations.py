"""What can be migrated into which engine, and how often progress is told."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from control.policy import migrations as rules
from control.policy.catalogue import ENGINES
from control.policy.violations import Violation

NOW = datetime(2026, 11, 26, 12, tzinfo=UTC)
ONLY_FILES = "only a file of the format files has a table; leave it out, or say the format"
UNKNOWN = dict.fromkeys(("bytes_done", "bytes_total", "tables_done", "tables_total"))


def pointers(engine: str, kind: str, form: str | None = None, mode: str = "copy") -> list[str]:
    source = {"kind": kind} | ({} if form is None else {"format": form})
    found = rules.check_request(engine, {"source": source, "mode": mode})
    return [one["pointer"] for one in found]


def test_targets_are_engines() -> None:
    assert set(rules.TARGETS) < set(ENGINES)


@pytest.mark.parametrize("engine", rules.TARGETS)
def test_an_engine_takes_its_own_formats(engine: str) -> None:
    target = rules.TARGETS[engine]
    every = {form for one in rules.TARGETS.values() for form in one.formats}
    refused = {form for form in every if pointers(engine, "upload", form)}
    assert refused == every - set(target.formats)
    assert pointers(engine, "upload") == []


@pytest.mark.parametrize("engine", rules.TARGETS)
def test_a_server_has_no_format_and_a_file_no_changes(engine: str) -> None:
    target = rules.TARGETS[engine]
    no_server = [] if target.connects else ["/source/kind"]
    no_sync = [] if target.syncs else ["/mode"]
    assert pointers(engine, "connection") == no_server
    assert pointers(engine, "connection", mode="copy_and_sync") == [*no_server, *no_sync]
    assert pointers(engine, "connection", "rdb") == [*no_server, "/source/format"]
    assert pointers(engine, "upload", mode="copy_and_sync") == ["/mode"]


def test_who_connects_and_who_follows() -> None:
    connects = {engine for engine, target in rules.TARGETS.items() if target.connects}
    assert connects == {"postgres", "timescaledb", "mariadb", "redis", "valkey"}
    assert {engine for engine, each in rules.TARGETS.items() if each.syncs} == {
        "postgres",
        "timescaledb",
        "mariadb",
        "redis",
        "valkey",
    }


@pytest.mark.parametrize(
    ("engine", "body", "pointer", "keyword", "message"),
    [
        (
            "mysql", {"source": {"kind": "connection"}}, "/source/kind", "engine",
            "a mysql instance takes files only; send one as an upload",
        ),
        (
            "valkey", {"source": {"kind": "connection", "format": "rdb"}}, "/source/format", "kind",
            "only an upload has a format; leave it out",
        ),
        (
            "mariadb", {"source": {"kind": "upload", "format": "rdb"}}, "/source/format", "engine",
            "a mariadb instance takes mysql_dump or files",
        ),
        (
            "postgres", {"source": {"kind": "upload", "table": "sales"}}, "/source/table", "format",
            ONLY_FILES,
        ),
        (
            "postgres", {"source": {"kind": "upload", "format": "postgres_plain", "table": "a"}},
            "/source/table", "format", ONLY_FILES,
        ),
        (
            "postgres", {"source": {"kind": "connection", "table": "sales"}},
            "/source/table", "format", ONLY_FILES,
        ),
        (
            "postgres", {"source": {"kind": "upload"}, "mode": "copy_and_sync"}, "/mode", "kind",
            "a file has no changes that could follow; choose copy, or migrate by connection",
        ),
    ],
)  # fmt: skip
def test_a_request_that_cannot_be(
    engine: str, body: dict[str, Any], pointer: str, keyword: str, message: str
) -> None:
    assert rules.check_request(engine, body) == [
        Violation(pointer=pointer, keyword=keyword, message=message)
    ]


@pytest.mark.parametrize(
    ("engine", "source"),
    [
        ("postgres", {"kind": "connection"}),
        ("postgres", {"kind": "connection", "format": None, "table": None}),
        ("postgres", {"kind": "upload"}),
        ("postgres", {"kind": "upload", "format": "files", "table": "sales"}),
        ("duckdb", {"kind": "upload", "format": "files"}),
    ],
)
def test_a_request_that_can_be_copies_where_it_does_not_say(
    engine: str, source: dict[str, Any]
) -> None:
    assert rules.check_request(engine, {"source": source}) == []
    assert rules.check_request(engine, {"source": source, "mode": "copy"}) == []


@pytest.mark.parametrize("engine", ["mysql", "duckdb"])
def test_every_violation_of_a_request_is_given_at_once(engine: str) -> None:
    body = {"source": {"kind": "connection", "format": "rdb"}, "mode": "copy_and_sync"}
    files_only, no_format, no_sync = rules.check_request(engine, body)
    assert files_only["pointer"] == "/source/kind"
    assert no_format["pointer"] == "/source/format"
    assert no_sync == Violation(
        pointer="/mode",
        keyword="engine",
        message=f"a {engine} instance does not follow a source; choose copy",
    )


@pytest.mark.parametrize("engine", rules.TARGETS)
def test_only_postgresql_has_a_way_back(engine: str) -> None:
    assert rules.check_cutover(engine, {}) == rules.check_cutover(engine, {"keep_way_back_s": 0})
    assert rules.check_cutover(engine, {}) == []
    refused = Violation(
        pointer="/keep_way_back_s",
        keyword="engine",
        message=f"a {engine} source cannot get changes of the instance; leave it out",
    )
    goes_back = engine in {"postgres", "timescaledb"}
    found = rules.check_cutover(engine, {"keep_way_back_s": 1})
    assert found == ([] if goes_back else [refused])


@pytest.mark.parametrize(
    ("figures", "percent"),
    [
        ({}, None),
        ({"bytes_done": 1, "bytes_total": 3}, 33),
        ({"bytes_done": 2, "bytes_total": 3}, 66),
        ({"bytes_done": 4, "bytes_total": 3}, 100),
        ({"bytes_done": 2**60 - 1, "bytes_total": 2**60}, 99),
        ({"bytes_done": 0, "bytes_total": 0, "tables_done": 1, "tables_total": 2}, 50),
        ({"bytes_done": None, "bytes_total": 3}, None),
        ({"bytes_done": 2**53, "bytes_total": 2**53}, 100),
    ],
)
def test_how_much_has_been_copied(figures: dict[str, Any], percent: int | None) -> None:
    assert rules.percent({**UNKNOWN, **figures}) == percent


@pytest.mark.parametrize(
    ("status", "after_s", "done", "told", "is_told"),
    [
        ("copying", 29.9, 9, 0, False),
        ("copying", 29.9, 10, 0, True),
        ("copying", 30, 0, 0, True),
        ("copying", 1, None, 5, False),
        ("copying", 1, 10, None, True),
        ("syncing", 299, 100, 100, False),
        ("syncing", 300, 100, 100, True),
    ],
)
def test_progress_is_told_by_time_and_by_amount(
    status: str, after_s: float, done: int | None, told: int | None, is_told: bool
) -> None:
    before = NOW - timedelta(seconds=after_s)
    assert rules.is_told(status, NOW, done, before, told) is is_told
    assert rules.is_told(status, NOW, done, None, None)
