"""Holds the order of requests, autocommit, interruption, and health while a query runs."""

import asyncio
import contextlib
import functools
import signal
import socket
import threading
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import orjson
import pytest

from contract_tests.by_day import one_in
from contract_tests.duckdb.process import Service, running
from contract_tests.service_process import until
from instance_services.duckdb.database import EngineLimits
from instance_services.duckdb.engine import Broken, Overloaded, SerialExecutor
from instance_services.duckdb.session import Failed
from instance_services.duckdb.turns import QueryTurns
from instance_services.duckdb.waiting import trouble

ENDLESS = "SELECT sum(a.range * b.range) FROM range(100000000) a, range(100000000) b"


def _with_engine(
    home: Path, use: Callable[[SerialExecutor], Awaitable[None]], **options: Any
) -> None:
    turns = QueryTurns()

    async def run() -> None:
        limits = EngineLimits(memory_bytes=400_000_000, threads=1)
        engine = SerialExecutor(turns, home / "database.duckdb", home / "temp", limits, **options)
        await engine.start()
        try:
            await use(engine)
        finally:
            await engine.stop()

    turns.run(asyncio.wait_for(run(), 60))


@contextlib.contextmanager
def _running_query(service: Service, sql: str) -> Iterator[None]:
    """The query runs while the block does; then its client goes away."""
    # It waits for longer than anybody waits for others: the query runs until it hangs up.
    client = service.client(timeout_s=600)

    def post() -> None:
        with contextlib.suppress(httpx.TransportError, RuntimeError):
            client.post("/query", json={"sql": sql})

    thread = threading.Thread(target=post)
    thread.start()
    try:
        # Other requests wait behind this one: a short patience that ends tells that it runs.
        until(lambda: not _answers_within(service, 0.3), "the query to run")
        yield
    finally:
        # Closing the transport closes the connection under the thread that waits on it.
        _hang_up(client)
        thread.join(30)
        assert not thread.is_alive()


def _hang_up(client: httpx.Client) -> None:

    for connection in client._transport._pool.connections:  # type: ignore[attr-defined]
        stream = connection._connection._network_stream
        with contextlib.suppress(OSError):
            stream.get_extra_info("socket").shutdown(socket.SHUT_RDWR)


def _answers_within(service: Service, timeout_s: float) -> bool:
    try:
        with service.client(timeout_s=timeout_s) as client:
            return client.post("/query", json={"sql": "SELECT 1"}).status_code == 200
    except httpx.ReadTimeout:
        return False


def test_requests_run_in_the_order_they_came(tmp_path: Path) -> None:
    async def use(engine: SerialExecutor) -> None:
        engine.submit("CREATE TABLE seen (i INTEGER)", [])
        finished: list[int] = []
        jobs = [engine.submit("INSERT INTO seen VALUES (?)", [i]) for i in range(50)]
        for i, job in enumerate(jobs):
            job.future.add_done_callback(functools.partial(_note, finished, i))
        answer = orjson.loads(await engine.submit("SELECT i FROM seen ORDER BY rowid", []).future)
        assert answer["rows"] == [[i] for i in range(50)]
        assert finished == list(range(50))

    _with_engine(tmp_path, use)


def _note(finished: list[int], i: int, _future: "asyncio.Future[bytes]") -> None:
    finished.append(i)


def test_health_answers_while_a_query_runs(service: Service) -> None:
    with _running_query(service, ENDLESS), service.client(None) as client:
        assert client.get("/health").json() == {"status": "ok"}


def test_a_client_that_goes_away_interrupts_its_query(service: Service) -> None:
    with _running_query(service, ENDLESS):
        pass
    assert service.rows("SELECT 1") == [[1]]


def test_what_an_interrupted_statement_did_is_undone(service: Service) -> None:
    service.query("CREATE TABLE undone (i HUGEINT)")
    with _running_query(service, f"INSERT INTO undone {ENDLESS}"):
        pass
    assert service.rows("SELECT count(*) FROM undone") == [[0]]


def test_a_request_abandoned_in_the_queue_is_never_begun(tmp_path: Path) -> None:
    async def use(engine: SerialExecutor) -> None:
        await engine.submit("CREATE TABLE kept (i INTEGER)", []).future
        first = engine.submit(ENDLESS, [])
        second = engine.submit("INSERT INTO kept VALUES (1)", [])
        third = engine.submit("SELECT count(*) FROM kept", [])
        engine.abandon(second)
        engine.abandon(first)
        assert orjson.loads(await third.future)["rows"] == [[0]]
        assert (first.finished, second.finished) == (True, True)

    _with_engine(tmp_path, use)


def test_a_full_queue_refuses_and_is_still_healthy(tmp_path: Path) -> None:
    async def use(engine: SerialExecutor) -> None:
        jobs = [engine.submit(ENDLESS, []) for _ in range(3)]
        with pytest.raises(Overloaded, match="3 requests are already waiting"):
            engine.submit("SELECT 1", [])
        assert await trouble(engine) is None
        for job in jobs:
            engine.abandon(job)
        while engine.is_busy:  # noqa: ASYNC110 - there is no event for this but the thing itself
            await asyncio.sleep(0.01)
        assert await engine.submit("SELECT 1", []).future

    _with_engine(tmp_path, use, waiting_max=3)


def test_an_engine_that_is_stopped_ends_no_process_any_more(tmp_path: Path) -> None:
    """Its watchdog would, once this process had worked for some seconds without its loop."""

    async def use(engine: SerialExecutor) -> None:
        engine.watch(engine.submit(ENDLESS, []))
        assert signal.getitimer(signal.ITIMER_PROF)[0] > 0

    _with_engine(tmp_path, use)
    assert signal.getitimer(signal.ITIMER_PROF) == (0, 0)


# Slow for what it adds by day.
@pytest.mark.nightly
def test_over_http_a_full_queue_is_503_with_a_time_to_come_back(tmp_path: Path) -> None:
    with running(tmp_path, "--waiting-max", "1") as service, service.client() as client:
        with pytest.raises(httpx.ReadTimeout), service.client(timeout_s=1) as impatient:
            until(lambda: impatient.post("/query", json={"sql": ENDLESS}).is_error, "never")
        refusals = []

        def answered() -> bool:
            response = client.post("/query", json={"sql": "SELECT 1"})
            if response.status_code == 503:
                refusals.append(response)
            return response.status_code == 200

        until(answered, "the abandoned query to make room")
    for refusal in refusals:
        assert list(refusal.json()) == ["error"]
        assert refusal.headers["Retry-After"] == "1"


def test_stopping_drops_what_waits_and_health_says_so(tmp_path: Path) -> None:
    async def use(engine: SerialExecutor) -> None:
        running_job = engine.submit(ENDLESS, [])
        waiting_job = engine.submit("SELECT 1", [])
        while engine.running is not running_job:  # noqa: ASYNC110 - a thread sets no event of ours
            await asyncio.sleep(0.01)
        await engine.stop()
        with pytest.raises(Failed, match="Interrupt"):
            await running_job.future
        with pytest.raises(Broken):
            await waiting_job.future
        with pytest.raises(Broken):
            engine.submit("SELECT 1", [])
        assert await trouble(engine) is not None

    _with_engine(tmp_path, use)


@pytest.mark.nightly
@pytest.mark.parametrize("number", one_in(2, [signal.SIGTERM, signal.SIGINT]))
def test_a_signal_ends_a_running_query_and_writes_a_checkpoint(
    tmp_path: Path, number: signal.Signals
) -> None:
    with running(tmp_path, "--stop-timeout-s", "1") as service:
        service.query("CREATE TABLE ended (i INTEGER)")
        service.query("INSERT INTO ended VALUES (42)")
        assert service.database.with_name("database.duckdb.wal").exists()
        with _running_query(service, ENDLESS):
            assert service.end(number) == 0
        assert not service.database.with_name("database.duckdb.wal").exists()
        service.start()
        assert service.rows("FROM ended") == [[42]]


def test_each_statement_commits_by_itself(service: Service) -> None:
    service.query("CREATE TABLE committed (i INTEGER)")
    service.error("INSERT INTO committed VALUES (1); INSERT INTO committed VALUES ('a')")
    assert service.rows("FROM committed") == [[1]]


@pytest.mark.parametrize(
    "sql",
    ["BEGIN; INSERT INTO open VALUES (1)", "BEGIN; INSERT INTO open VALUES (1); SELECT nothing"],
)
def test_a_transaction_left_open_does_not_reach_the_next_request(
    service: Service, sql: str
) -> None:
    service.query("CREATE OR REPLACE TABLE open (i INTEGER)")
    service.post(sql)
    assert service.rows("SELECT count(*) FROM open") == [[0]]
    assert "no transaction is active" in service.error("COMMIT")


def test_a_transaction_within_a_request_is_whole_or_not_at_all(service: Service) -> None:
    service.query("CREATE TABLE whole (i INTEGER)")
    service.query("BEGIN; INSERT INTO whole VALUES (1); INSERT INTO whole VALUES (2); COMMIT")
    service.error("BEGIN; INSERT INTO whole VALUES (3); INSERT INTO whole VALUES ('a'); COMMIT")
    assert service.rows("FROM whole") == [[1], [2]]


def test_types_learnt_of_a_text_are_forgotten_when_the_table_changes(service: Service) -> None:
    for kind, value in (("INTERVAL", "1 month"), ("INTEGER", 5), ("DATE", "infinity")):
        service.query("DROP TABLE IF EXISTS changing")
        service.query(f"CREATE TABLE changing AS SELECT ?::{kind} AS v", [value])
        for _ in range(2):
            assert service.rows("SELECT v FROM changing") == [[value]]
            assert service.rows("SELECT v FROM changing WHERE 1 = ?", [1]) == [[value]]
