"""Holds promise 44: hostile SQL reaches no file and no network, and health answers after it."""

import socket
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import httpx
import psutil
import pytest

from contract_tests.duckdb import corpus
from contract_tests.duckdb.process import Service, running, until

SECRET = "canary-4f1d"

# {secret} is a file with a secret, {folder} the folder that holds it, {new} a file that must not
# come to be, {url} a listener that must not be reached, {data} the database file itself, {temp} its
# directory for spilling, which the engine itself must be able to write to.
STATEMENTS = [
    "SELECT * FROM read_text('{secret}')",
    "SELECT * FROM read_blob('{secret}')",
    "SELECT * FROM read_csv('{secret}')",
    "SELECT * FROM read_csv_auto('{folder}/../{folder_name}/secret.csv')",
    "SELECT * FROM read_json('{secret}')",
    "SELECT * FROM read_parquet('{secret}')",
    "SELECT * FROM sniff_csv('{secret}')",
    "SELECT * FROM '{secret}'",
    'SELECT * FROM "{secret}"',
    "SELECT * FROM glob('{folder}/*')",
    "SELECT * FROM read_text('file://{secret}')",
    "SELECT * FROM read_csv('{url}/x.csv')",
    "SELECT * FROM read_text('{url}')",
    "SELECT * FROM '{url}/x.parquet'",
    "COPY (SELECT 1) TO '{new}'",
    "COPY (SELECT 1) TO '{data}'",
    "COPY (SELECT 1) TO '{temp}/x.csv'",
    "CREATE TABLE stolen (s VARCHAR); COPY stolen FROM '{secret}'",
    # The engine keeps these paths open to itself, and with them to COPY.
    "COPY (SELECT 1) TO '{data}.wal.recovery'",
    "EXPLAIN ANALYZE COPY (SELECT 1) TO '{data}.wal.recovery'",
    "EXPLAIN (ANALYZE) COPY (SELECT 1) TO '{data}.wal.recovery'",
    "EXPLAIN ANALYZE COPY (SELECT 1) TO '{data}'",
    "EXPLAIN (ANALYZE, FORMAT json) COPY (SELECT 1) TO '{data}'",
    "PREPARE p AS COPY (SELECT 1) TO '{data}'; EXECUTE p",
    "EXPORT DATABASE '{new}'",
    "IMPORT DATABASE '{folder}'",
    "ATTACH '{new}' AS other",
    "ATTACH '{temp}/other.duckdb' AS other",
    "ATTACH '{url}/x.duckdb' AS other",
    "ATTACH ':memory:' AS other",
    "DETACH database",
    "COPY FROM DATABASE database TO memory",
    "INSTALL httpfs FROM '{url}'",
    "INSTALL httpfs; LOAD httpfs",
    "LOAD '{secret}'",
    "UPDATE EXTENSIONS",
    "SET enable_external_access = true; SELECT * FROM read_text('{secret}')",
    "SET lock_configuration = false",
    "RESET lock_configuration",
    "SET GLOBAL allowed_directories = ['{folder}']",
    "SET temp_directory = '{folder}'",
    "SET memory_limit = '100GB'",
    "SET threads = 64",
    "SET custom_user_agent = 'x'; SET extension_directory = '{folder}'",
    "SET TimeZone = 'Asia/Tokyo'",
    "PRAGMA enable_profiling = 'json'; PRAGMA profiling_output = '{new}'; SELECT 1",
    "PRAGMA disable_checkpoint_on_shutdown",
    "SET log_query_path = '{new}'; SELECT 1",
    "CALL enable_logging(storage='file', storage_path='{new}')",
    "SELECT * FROM enable_logging(storage='file', storage_path='{new}')",
    "SELECT 1; SELECT * FROM \"ENABLE_LOGGING\"(storage='file', storage_path='{new}')",
    "EXPLAIN ANALYZE CALL enable_logging(storage='file', storage_path='{new}')",
    "CREATE MACRO m() AS TABLE FROM enable_logging(storage='file', storage_path='{new}')",
    "SELECT 'ééééé'; FROM enable_logging(storage='file', storage_path='{new}')",
    "FROM query('FROM enable_logging(storage=''file'', storage_path=''{new}'')')",
    # SQL that is put together only while it is bound, and so is seen by nobody before.
    "FROM query('FROM enable_' || 'logging(storage=''file'', storage_path=''{new}'')')",
    "FROM system.main.\"Query\" /* ( */ ('FROM enable_' || 'logging()')",
    "FROM query\u00a0('FROM enable_' || 'logging()')",
    "CREATE MACRO m2(x) AS TABLE FROM query(x)",
    "FROM json_execute_serialized_sql(json_serialize_sql('FROM enable_' || 'logging()'))",
    # Numbers followed as addresses in the process itself.
    "FROM arrow_scan(1, 2, 3)",
    'EXPLAIN FROM "ARROW_SCAN_DUMB"(1, 2, 3)',
    "FROM pandas_scan(1)",
    "FROM read_duckdb('{temp}/x.duckdb')",
    "CREATE PERSISTENT SECRET s (TYPE s3)",
    "CREATE VIEW v AS SELECT * FROM read_text('{secret}'); FROM v",
    "CREATE TABLE t2 AS SELECT * FROM read_text('{secret}')",
    "SELECT getenv('PATH')",
    "SELECT * FROM services",
    "SELECT content FROM read_text(['{secret}', '{secret}'])",
    "SELECT * FROM parquet_metadata('{secret}')",
]
# Asking for all memory or all time: refused or cut short, and the service answers afterwards.
GREEDY = [
    "SELECT repeat('x', 5000000000)",
    "SELECT length(repeat('x', 300000000))",
    "SELECT list_aggregate(range(100000000), 'sum')",
    "WITH RECURSIVE r(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM r) SELECT max(i) FROM r",
    "SELECT " + "(" * 5000 + "1" + ")" * 5000,
    "SELECT " + "+".join(["1"] * 20000),
    "SELECT regexp_matches(repeat('a', 1000000), '(a*)*b')",
    "SELECT count(*) FROM range(1000000000) a, range(1000000000) b",
]


@dataclass
class Surroundings:
    """What must stay as it is."""

    folder: Path
    service: Service
    visits: list[bytes] = field(default_factory=list)
    url: str = ""

    @property
    def places(self) -> dict[str, str]:
        return {
            "secret": str(self.folder / "secret.csv"),
            "folder": str(self.folder),
            "folder_name": self.folder.name,
            "new": str(self.folder / "new"),
            "url": self.url,
            "data": str(self.service.database),
            "temp": str(self.service.home / "temp"),
        }

    def check(self) -> None:
        assert [entry.name for entry in self.folder.iterdir()] == ["secret.csv"]
        assert (self.folder / "secret.csv").read_text() == f"secret\n{SECRET}\n"
        assert self.visits == []
        temp = self.service.home / "temp"
        assert not temp.exists() or list(temp.iterdir()) == []
        assert {entry.name for entry in self.service.home.iterdir()} <= {
            *("database.duckdb", "database.duckdb.wal", "users.json", "log", "temp"),
        }
        assert self.service.rows("SELECT sum(i) FROM kept") == [[3]]


@pytest.fixture(scope="module")
def around(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Surroundings]:
    folder = tmp_path_factory.mktemp("host")
    (folder / "secret.csv").write_text(f"secret\n{SECRET}\n")
    with (
        running(tmp_path_factory.mktemp("hostile")) as service,
        socket.create_server(("127.0.0.1", 0)) as listener,
    ):
        surroundings = Surroundings(folder, service)
        surroundings.url = f"http://127.0.0.1:{listener.getsockname()[1]}"
        threading.Thread(target=_listen, args=(listener, surroundings.visits), daemon=True).start()
        service.query("CREATE TABLE kept AS SELECT unnest([1, 2]) AS i")
        yield surroundings


def _listen(listener: socket.socket, visits: list[bytes]) -> None:
    while True:
        try:
            connection, _ = listener.accept()
        except OSError:
            return
        with connection:
            visits.append(connection.recv(100))


def test_the_canaries_can_be_reached_at_all(around: Surroundings) -> None:
    # Else the tests below would pass for the wrong reason.
    assert SECRET in Path(around.places["secret"]).read_text()
    port = int(around.url.rpartition(":")[2])
    with socket.create_connection(("127.0.0.1", port)) as probe:
        probe.sendall(b"probe")
    until(lambda: bool(around.visits), "the listener to be visited")
    around.visits.clear()


@pytest.mark.parametrize("template", [*STATEMENTS, *corpus.STATEMENTS])
def test_a_hostile_statement_is_refused_and_touches_nothing(
    around: Surroundings, template: str
) -> None:
    response = around.service.post(template.format(**around.places))
    assert response.status_code == 400, response.text
    assert list(response.json()) == ["error"]
    assert SECRET not in response.text
    around.check()


@pytest.mark.parametrize("sql", GREEDY, ids=lambda sql: sql[:40])
def test_health_answers_soon_after_a_greedy_statement(around: Surroundings, sql: str) -> None:
    service = around.service
    with service.client(timeout_s=1) as client:
        try:
            assert client.post("/query", json={"sql": sql}).status_code in (200, 400)
        except httpx.ReadTimeout:
            pass
        except httpx.TransportError:
            # The kernel or the engine ended the process: the supervisor's part is to start it.
            assert service.process is not None
            service.process.wait(30)
            service.start()
    # Within 5 s of its own work: a clock goes on where the machine itself stands still. But that
    # does not show what merely waits.
    before = worked_s(service)
    with service.client(None, timeout_s=30) as client:
        assert client.get("/health").status_code == 200
    assert worked_s(service) - before < 5
    assert service.rows("SELECT sum(i) FROM kept") == [[3]]


def worked_s(service: Service) -> float:
    assert service.process is not None
    times = psutil.Process(service.process.pid).cpu_times()
    return float(times.user + times.system)


def test_a_column_may_be_named_as_a_refused_function_is(around: Surroundings) -> None:
    sql = (
        "CREATE TABLE query (query INTEGER); INSERT INTO query (query) VALUES (1), (2);"
        " SELECT query FROM query WHERE query = (SELECT max(query) FROM query)"
    )
    assert around.service.rows(sql) == [[2]]
    assert around.service.rows("SELECT ?", ["FROM query('…'), arrow_scan"]) == [
        ["FROM query('…'), arrow_scan"]
    ]
