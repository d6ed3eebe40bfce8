"""Holds what is asked again and again to what a first asking would answer, whatever has changed."""

import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import duckdb
import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, rule, run_state_machine_as_test

from contract_tests.by_day import one_in
from instance_services.duckdb import prepared
from instance_services.duckdb.allowance import Allowance
from instance_services.duckdb.database import EngineLimits, open_database
from instance_services.duckdb.session import Failed, Session

OFTEN = 14
QUESTIONS = (
    "SELECT count(*) AS n FROM t WHERE i > 1000",
    "SELECT i FROM t WHERE i = 5000",
    "SELECT count(DISTINCT i), min(i), max(i), sum(i) FROM t",
    "SELECT i IS NULL AS missing FROM t WHERE i IS NULL",
    "SELECT coalesce(i, -1) AS c FROM t WHERE coalesce(i, -1) = -1",
    "SELECT * FROM t ORDER BY ALL DESC LIMIT 3",
    "SELECT count(*) FROM t AS a JOIN t AS b ON a.i = b.i WHERE a.i > 500",
    "SELECT count(*) FROM t WHERE i IN (5000, 6000) OR i BETWEEN 4999 AND 5001",
    "SELECT * FROM seen ORDER BY ALL LIMIT 2",
    "SELECT twice(3) AS twice",
    "SELECT TIMESTAMPTZ '2026-01-01 00:00:00+00' AS t, s FROM u",
    "SELECT s::INTEGER + 1 AS next FROM u",
    "SELECT * FROM u -- with a comment",
    "SELECT count(*) FROM seen_again WHERE i > 60",
    "SELECT getvariable('x') AS x, i FROM t WHERE i = getvariable('x')",
    "SELECT table_name, column_name FROM information_schema.columns ORDER BY ALL",
)
CHANGES = (
    "INSERT INTO t SELECT range + 4990 FROM range(20)",
    "INSERT INTO t VALUES (NULL)",
    "INSERT INTO t VALUES (7) RETURNING i",
    "DELETE FROM t WHERE i > 4000",
    "DELETE FROM t WHERE i IS NULL",
    "UPDATE t SET i = i + 1500 WHERE i < 3",
    "TRUNCATE t",
    "ALTER TABLE t ADD COLUMN IF NOT EXISTS other INTEGER DEFAULT 9",
    "ALTER TABLE t DROP COLUMN IF EXISTS other",
    "CREATE OR REPLACE TABLE t AS SELECT range AS i FROM range(100)",
    "CREATE OR REPLACE VIEW seen AS SELECT i FROM t WHERE i > 50",
    "CREATE OR REPLACE VIEW seen AS SELECT 'other' AS i",
    "CREATE OR REPLACE MACRO twice(x) AS x * 2",
    "CREATE OR REPLACE MACRO twice(x) AS x * 20",
    "CREATE OR REPLACE TABLE u AS SELECT '12' AS s",
    "CREATE OR REPLACE TABLE u AS SELECT 'twelve' AS s",
    "CREATE SCHEMA IF NOT EXISTS elsewhere; CREATE OR REPLACE TABLE elsewhere.t AS SELECT 5 AS i",
    "USE elsewhere",
    "USE main",
    "CHECKPOINT",
    "BEGIN; INSERT INTO t VALUES (5000); ROLLBACK",
    "BEGIN; INSERT INTO t VALUES (5000)",
    "INSERT INTO t VALUES (5000); SELECT error('halfway'); INSERT INTO t VALUES (6000)",
    "INSERT INTO t VALUES (6000); SELECT count(*) FROM t",
    "EXPLAIN ANALYZE INSERT INTO t VALUES (5000)",
    "WITH more AS (SELECT 5000 AS i) INSERT INTO t BY NAME SELECT * FROM more",
    "MERGE INTO t USING (SELECT 5000 AS i) AS m ON t.i = m.i WHEN NOT MATCHED THEN INSERT",
    "UPDATE t SET i = 5000 WHERE i = 5 RETURNING i",
    "CREATE OR REPLACE TEMP TABLE t AS SELECT 5000 AS i",
    "CREATE OR REPLACE TEMP VIEW u AS SELECT '5' AS s",
    "DROP VIEW seen",
    "SET VARIABLE x = 7",
)


class Asked:
    """A session, and beside it another that has never heard a question before."""

    def __init__(self, home: Path) -> None:
        home.mkdir(exist_ok=True)
        self._home = home
        self._allowance = Allowance(home / "db.duckdb", home / "temp", None)
        limits = EngineLimits(memory_bytes=400_000_000, threads=1)
        self.connection = open_database(home / "db.duckdb", home / "temp", limits)
        self.session = Session(self.connection, self._allowance)
        for name in ("TABLE t", "VIEW seen", "MACRO twice", "TABLE u"):
            first = next(change for change in CHANGES if f"REPLACE {name}" in change)
            self.session.answer(first, [])
        self.session.answer("CREATE VIEW seen_again AS SELECT * FROM seen WHERE i < 5001", [])

    def twice(self, sql: str) -> tuple[Any, Any]:
        # Of the same connection, or it would be in another schema.
        return _told(self.session, sql), _told(Session(self.connection, self._allowance), sql)

    def prepared(self) -> int:
        return len(self.names())

    def names(self) -> list[str]:
        told = self.connection.execute("SELECT name FROM duckdb_prepared_statements()")
        return [name for (name,) in told.fetchall()]


def _told(session: Session, sql: str) -> Any:
    try:
        answer = json.loads(session.answer(sql, []))
    except Failed as error:
        return str(error)
    return {name: value for name, value in answer.items() if name != "elapsed_ms"}


@pytest.fixture
def all_is_quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is quick depends on what else the machine does."""
    monkeypatch.setattr(prepared, "_QUICK_S", 60.0)


@pytest.fixture
def asked(tmp_path: Path) -> Iterator[Asked]:
    made = Asked(tmp_path / "asked")
    yield made
    made.connection.close()


class Machine(RuleBasedStateMachine):
    home: Path
    number = 0

    def __init__(self) -> None:
        super().__init__()
        Machine.number += 1
        self.asked = Asked(self.home / str(Machine.number))

    @rule(sql=st.sampled_from(QUESTIONS), times=st.sampled_from((1, OFTEN)))
    def ask(self, sql: str, times: int) -> None:
        for _ in range(times):
            _told(self.asked.session, sql)
        often, first = self.asked.twice(sql)
        assert often == first, sql

    @rule(sql=st.sampled_from(CHANGES))
    def change(self, sql: str) -> None:
        _told(self.asked.session, sql)

    def teardown(self) -> None:
        self.asked.connection.close()


_QUICK = settings(
    deadline=None,
    database=None,
    max_examples=3,
    stateful_step_count=20,
    suppress_health_check=list(HealthCheck),
)


@pytest.mark.nightly
@pytest.mark.usefixtures("all_is_quick")
@pytest.mark.parametrize(
    "change",
    # Each kind of change is drawn by the machine below as well.
    one_in(16, CHANGES),
)
def test_after_a_change_an_answer_is_that_of_a_first_asking(asked: Asked, change: str) -> None:
    for sql in QUESTIONS:
        for _ in range(OFTEN):
            _told(asked.session, sql)
    _told(asked.session, change)
    for sql in QUESTIONS:
        often, first = asked.twice(sql)
        assert often == first, sql


# Slow for what it adds by day.
@pytest.mark.nightly
@pytest.mark.usefixtures("all_is_quick")
def test_an_answer_is_that_of_a_first_asking(tmp_path: Path) -> None:
    run_state_machine_as_test(type("Asking", (Machine,), {"home": tmp_path}), settings=_QUICK)


@pytest.mark.nightly
@pytest.mark.usefixtures("all_is_quick")
def test_an_answer_is_that_of_a_first_asking_at_length(tmp_path: Path) -> None:
    long = settings(_QUICK, max_examples=500, stateful_step_count=50)
    run_state_machine_as_test(type("Asking", (Machine,), {"home": tmp_path}), settings=long)


@pytest.mark.usefixtures("all_is_quick")
def test_what_is_asked_often_is_planned_once_until_something_changes(asked: Asked) -> None:
    for sql in QUESTIONS[:6]:
        for _ in range(OFTEN):
            asked.session.answer(sql, [])
    assert asked.prepared() == 6
    asked.session.answer("INSERT INTO t VALUES (1)", [])
    assert asked.prepared() == 0


@pytest.mark.usefixtures("all_is_quick")
def test_so_many_are_kept_and_no_more(asked: Asked) -> None:
    for number in range(20):
        for _ in range(OFTEN):
            asked.session.answer(f"SELECT {number} AS n", [])
    assert asked.prepared() == 16


@pytest.mark.usefixtures("all_is_quick")
def test_what_is_asked_no_more_makes_room(asked: Asked, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(prepared, "_UNUSED_RUNS", 5 * OFTEN)
    names = []
    for number in range(20):
        for _ in range(OFTEN):
            asked.session.answer(f"SELECT {number} AS n", [])
        names = asked.names()
    assert len(names) == 16
    assert "menagerie_1" not in names
    assert "menagerie_20" in names


@pytest.mark.usefixtures("all_is_quick")
@pytest.mark.parametrize(
    "clock",
    one_in(
        3,
        [
            *(
                "now()",
                "localtimestamp",
                "localtime",
                "current_timestamp",
                "current_localtimestamp()",
            ),
            *("random()", "uuid()", '"now"()', "shown.moment", "told()", "later.moment"),
            *("nextval('steps')", "(SELECT moment FROM shown)"),
        ],
    ),
)
def test_what_moves_on_does_not_stand_still(asked: Asked, clock: str) -> None:
    for definition in (
        "CREATE SEQUENCE steps",
        "CREATE VIEW shown AS SELECT localtimestamp AS moment",
        "CREATE VIEW later AS SELECT moment FROM shown",
        "CREATE MACRO told() AS localtimestamp",
    ):
        asked.session.answer(definition, [])
    source = clock.partition(".")[0] if "." in clock else "(SELECT 1)"
    seen = set()
    for _ in range(2 * OFTEN):
        answer = json.loads(asked.session.answer(f"SELECT {clock} AS v FROM {source}", []))
        seen.add(json.dumps(answer["rows"]))
        time.sleep(0.001)
    assert len(seen) == 2 * OFTEN


def test_every_function_that_moves_on_is_known_to_do_so() -> None:
    """Of the engine's own, those whose label says otherwise are few; a new one is found here."""
    connection = duckdb.connect()
    plain = connection.execute(
        "SELECT DISTINCT function_name FROM duckdb_functions() "
        "WHERE function_type = 'scalar' AND stability = 'CONSISTENT' "
        "AND len(parameters) = 0 AND function_name SIMILAR TO '[a-z_]+'"
    ).fetchall()
    moving = set()
    for (name,) in plain:
        seen = set()
        for _ in range(3):
            try:
                seen.add(repr(connection.execute(f"SELECT {name}()").fetchall()))
            except duckdb.Error:
                break
            time.sleep(0.002)
        if len(seen) > 1:
            moving.add(name)
    assert moving <= {"current_localtime", "current_localtimestamp"}


@pytest.mark.usefixtures("all_is_quick")
@pytest.mark.parametrize("blank", ["", " ", "\n", "\u00a0", "\u200b", "\u2060", " -- a word\n"])
def test_what_is_told_from_today_is_not_kept(asked: Asked, blank: str) -> None:
    """An age changes at midnight only, so it is looked at what is prepared."""
    for _ in range(OFTEN):
        asked.session.answer(f"SELECT age{blank}(TIMESTAMP '2020-01-01') AS v", [])
    assert asked.prepared() == 0


def test_work_that_takes_long_is_not_prepared(
    asked: Asked, monkeypatch: pytest.MonkeyPatch
) -> None:
    for limit_s, prepared_ in ((0.0, 0), (60.0, 1)):
        # What is long is said here, or a quick machine would know nothing that is.
        monkeypatch.setattr(prepared, "_QUICK_S", limit_s)
        for _ in range(OFTEN):
            asked.session.answer("SELECT count(*) FROM t WHERE i % 7 = 3", [])
        assert asked.prepared() == prepared_


@pytest.mark.usefixtures("all_is_quick")
def test_an_answer_that_is_cut_leaves_no_transaction_open(asked: Asked) -> None:
    asked.session.answer("CREATE TABLE many AS SELECT range AS i FROM range(10050)", [])
    for _ in range(OFTEN):
        answer = json.loads(asked.session.answer("SELECT i FROM many", []))
    assert answer["truncated"]
    asked.session.answer("DROP TABLE many", [])
    asked.session.answer("CHECKPOINT", [])
