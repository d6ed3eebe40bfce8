"""An interrupt of one request, whenever it comes, leaves nothing to the next."""

import threading
import time
from pathlib import Path

import duckdb
import pytest

from instance_services.duckdb import prepared
from instance_services.duckdb.allowance import Allowance
from instance_services.duckdb.database import EngineLimits, open_database
from instance_services.duckdb.session import Failed, Session

INTERRUPTED = 300
TEXTS = (
    "BEGIN; INSERT INTO t VALUES (1); ROLLBACK",
    "BEGIN; INSERT INTO t VALUES (1)",
    "SELECT count(*) FROM t",
    "SELECT 1",
)


def test_a_request_that_is_interrupted_leaves_no_transaction_open(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(prepared, "_AFTER_RUNS", 2)
    monkeypatch.setattr(prepared, "_QUICK_S", 60.0)
    limits = EngineLimits(memory_bytes=400_000_000, threads=1)
    connection = open_database(tmp_path / "db.duckdb", tmp_path / "temp", limits)
    session = Session(connection, Allowance(tmp_path / "db.duckdb", tmp_path / "temp", None))
    session.answer("CREATE TABLE t (i INTEGER)", [])
    done = threading.Event()

    def interrupt() -> None:
        while not done.wait(0.0001):
            connection.interrupt()

    interrupting = threading.Thread(target=interrupt)
    interrupting.start()
    failures: list[Failed] = []
    deadline = time.monotonic() + 60
    try:
        while len(failures) < INTERRUPTED and time.monotonic() < deadline:
            for sql in TEXTS:
                try:
                    session.answer(sql, [])
                except Failed as error:
                    failures.append(error)
    finally:
        done.set()
        interrupting.join()
    assert failures, "no interrupt came while a statement ran"
    causes = [each.__cause__ for each in failures]
    assert all(isinstance(each, duckdb.InterruptException) for each in causes), causes
    assert b'"rows":[[0]]' in session.answer("SELECT count(*) FROM t", [])
    connection.close()
