"""What an engine's log holds of its owner's statements: nothing, not even of one that crashed."""

import contextlib
import os
import signal
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psycopg
import pytest

from contract_tests.cell.rig import until
from contract_tests.engines import postgres_sessions
from contract_tests.engines.conftest import Subject

CANARY = "a_word_of_the_owners"
WORKING = f"SELECT pg_sleep(60) AS {CANARY}"
CRASHES = (signal.SIGSEGV, signal.SIGBUS, signal.SIGFPE, signal.SIGILL, signal.SIGABRT)


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


@pytest.mark.parametrize("subject", ["mariadb", "redis", "valkey"], indirect=True)
def test_a_crash_writes_nothing(running: Subject) -> None:
    """These servers' own reports of a crash have the statement that ran, or the command."""
    assert running.process is not None
    status = Path(f"/proc/{running.process.pid}/status").read_text()
    caught = int(status.partition("SigCgt:")[2].split()[0], 16)
    assert caught >> signal.SIGTERM - 1 & 1
    for number in CRASHES:
        assert not caught >> number - 1 & 1, number


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
