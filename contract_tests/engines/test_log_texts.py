"""What an engine's log holds of its owner's statements: nothing, not even of one that crashed."""

import contextlib
import os
import signal
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psycopg
import pymysql
import pytest
import redis

from contract_tests.cell import rig
from contract_tests.cell.rig import until
from contract_tests.engines import postgres_sessions
from contract_tests.engines.conftest import Subject
from contract_tests.engines.speakers import ONCE

CANARY = "a_word_of_the_owners"
FORGED = "x\n2026-11-23T07:09:00Z menagerie: forged"
WORKING = f"SELECT pg_sleep(60) AS {CANARY}"
CRASHES = (signal.SIGSEGV, signal.SIGBUS, signal.SIGFPE, signal.SIGILL, signal.SIGABRT)


@pytest.mark.nightly
@postgres_sessions.every_version
def test_a_deadlock_is_logged_without_the_statements(running: Subject) -> None:
    postgres_sessions.ask(running, "CREATE TABLE t AS SELECT n FROM generate_series(1, 2) AS n")
    one, other = (postgres_sessions.session(running) for _ in "12")
    with one, other, contextlib.suppress(psycopg.errors.DeadlockDetected):
        for number, each in ((1, one), (2, other)):
            each.execute("BEGIN")
            each.execute(f"UPDATE t SET n = n WHERE n = {number}".encode())
        update = f"UPDATE t SET n = n WHERE n = {{}} AND '{CANARY}' <> ''"
        waiting = begin(lambda: one.execute(update.format(2).encode()))
        other.execute(update.format(1).encode())
        waiting.join()
    until(lambda: "deadlock detected" in said(running), "the deadlock is logged")
    assert CANARY not in said(running)


@pytest.mark.nightly
@postgres_sessions.newest
def test_a_session_of_postgresql_that_crashed_is_logged_without_its_statement(
    running: Subject,
) -> None:
    session = postgres_sessions.session(running)
    begin(lambda: session.execute(WORKING.encode()))
    pid = session.info.backend_pid
    state = f"SELECT state = 'active' FROM pg_stat_activity WHERE pid = {pid}"
    until(lambda: postgres_sessions.value(running, state), "it works")
    os.kill(running.outside(pid), signal.SIGSEGV)
    until(lambda: "was terminated by signal" in said(running), "the crash is logged")
    assert CANARY not in said(running)


@pytest.mark.parametrize("shared", ["mariadb", "redis", "valkey"], indirect=True)
def test_a_crash_writes_nothing(shared: Subject) -> None:
    """These servers' own reports of a crash have the statement that ran, or the command."""
    assert shared.process is not None
    status = Path(f"/proc/{shared.process.pid}/status").read_text()
    caught = int(status.partition("SigCgt:")[2].split()[0], 16)
    assert caught >> signal.SIGTERM - 1 & 1
    for number in CRASHES:
        assert not caught >> number - 1 & 1, number


@pytest.mark.parametrize("shared", ["mariadb", "redis", "valkey", "duckdb"], indirect=True)
def test_a_stranger_writes_no_line_of_his_own(shared: Subject) -> None:
    """As PostgreSQL would have it, to which the gateway passes no such name."""
    path, engine = str(shared.driver.socket(shared.site)), shared.spec.engine
    if engine == "mariadb":
        for names in ({"user": FORGED}, {"user": "app", "database": FORGED}):
            with pytest.raises(pymysql.err.OperationalError, match="Access denied"):
                pymysql.connect(unix_socket=path, password="x", **names)
    elif engine == "duckdb":
        with rig.engine(path) as http:
            assert http.post("/query", json={"sql": FORGED}, auth=(FORGED, FORGED)).is_error
    else:
        client = redis.Redis(unix_socket_path=path, username=FORGED, password=FORGED, retry=ONCE)
        with client, pytest.raises(redis.AuthenticationError):
            client.ping()
    assert "forged" not in said(shared)


def said(subject: Subject) -> str:
    return subject.site.log.read_text(errors="replace")


def begin(work: Callable[[], Any]) -> threading.Thread:
    """What may be broken off."""

    def run() -> None:
        with contextlib.suppress(Exception):
            work()

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    return thread
