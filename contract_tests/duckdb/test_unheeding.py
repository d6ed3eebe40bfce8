"""Holds that no statement holds an instance: what does not obey is ended with the process."""

import contextlib
import signal
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from contract_tests.by_day import one_in
from contract_tests.duckdb import corpus
from contract_tests.duckdb.process import Service, running
from contract_tests.service_process import until

_REPLACED = 70
_PULSELESS = int(signal.SIGPROF)


@pytest.fixture
def impatient(tmp_path: Path) -> Iterator[Service]:
    with running(tmp_path, "--interrupt-timeout-s", "1.5", "--stop-timeout-s", "1") as service:
        service.query("CREATE TABLE kept AS SELECT 42 AS i")
        yield service


def _abandon(service: Service, sql: str, after_s: float = 1.0) -> None:
    with service.client(timeout_s=after_s) as client, contextlib.suppress(httpx.TransportError):
        client.post("/query", json={"sql": sql})


def _ended(service: Service) -> int | None:
    assert service.process is not None
    return service.process.poll()


@pytest.mark.nightly
@pytest.mark.parametrize("sql", one_in(len(corpus.UNHEEDING), corpus.UNHEEDING))
def test_what_does_not_obey_is_replaced_and_health_says_so(impatient: Service, sql: str) -> None:
    service = impatient
    answers: list[httpx.Response] = []

    def wait_in_line() -> None:
        with contextlib.suppress(httpx.TransportError):
            answers.append(service.post("SELECT 1"))

    abandoning = threading.Thread(target=_abandon, args=(service, sql))
    abandoning.start()
    with service.client(None) as client:
        told = []
        waiting = threading.Thread(target=wait_in_line)
        time.sleep(0.2)
        waiting.start()
        with contextlib.suppress(httpx.TransportError):
            while _ended(service) is None:
                told.append(client.get("/health"))
                time.sleep(0.05)
    until(lambda: _ended(service) is not None, "the process to end")
    abandoning.join()
    waiting.join()
    assert _ended(service) == _REPLACED
    assert {each.status_code for each in told} == {200, 503}
    (reason,) = {each.json()["error"] for each in told if each.status_code == 503}
    assert "cannot be interrupted" in reason
    assert [each.status_code for each in answers] == [503]
    assert answers[0].json()["error"] == reason
    service.start()
    assert service.rows("FROM kept") == [[42]]


@pytest.mark.parametrize("sql", one_in(4, corpus.HEEDING))
def test_what_obeys_leaves_the_process_alone(service: Service, sql: str) -> None:
    _abandon(service, sql, after_s=0.3)
    assert service.rows("SELECT 1") == [[1]]
    assert _ended(service) is None


@pytest.mark.nightly
def test_a_query_whose_client_waits_is_left_alone(impatient: Service) -> None:
    with impatient.client(timeout_s=6) as client, pytest.raises(httpx.ReadTimeout):
        client.post("/query", json={"sql": corpus.HEEDING[2]})
    assert impatient.rows("FROM kept") == [[42]]


@pytest.mark.nightly
def test_the_service_stops_in_time_beside_such_a_statement(impatient: Service) -> None:
    service = impatient
    holding = threading.Thread(target=_abandon, args=(service, corpus.UNHEEDING[0], 60))
    holding.start()
    time.sleep(0.5)
    # The cell waits for 10 s, and then kills.
    started = time.monotonic()
    assert service.end(signal.SIGTERM) == _REPLACED
    assert time.monotonic() - started < 10
    holding.join()
    service.start()
    assert service.rows("FROM kept") == [[42]]


# The service as it is, with a statement that holds the interpreter as a huge value would.
HOLDING = """
import re
from instance_services.duckdb import watchdog, session
watchdog._WORKED_S = 1
answer = session.Session.answer
def hold(self, sql, params):
    if "hold" in sql:
        re.match(r"(a+)+b", "a" * 40)
    return answer(self, sql, params)
session.Session.answer = hold
from instance_services.duckdb.__main__ import main
raise SystemExit(main())
"""


@pytest.mark.nightly
def test_a_loop_without_a_turn_ends_the_process(tmp_path: Path) -> None:
    with running(tmp_path) as service:
        service.query("CREATE TABLE kept AS SELECT 42 AS i")
        service.end(signal.SIGTERM)
        service.start("-c", HOLDING)
        # The watchdog begins with a query that takes long.
        long = threading.Thread(target=_abandon, args=(service, corpus.HEEDING[2], 0.5))
        long.start()
        time.sleep(0.3)
        _abandon(service, "SELECT 'hold'", 30)
        assert service.process is not None
        assert service.process.wait(60) == _PULSELESS
        service.start()
        assert service.rows("FROM kept") == [[42]]
