"""Holds promise 44: hostile SQL reaches no file and no network, and health answers after it."""

import socket
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import httpx
import psutil
import pytest

from contract_tests.attacks.statements import called, fill, places, said
from contract_tests.by_day import one_in
from contract_tests.duckdb import corpus
from contract_tests.duckdb.process import Service, running
from contract_tests.service_process import until

SECRET = "canary-4f1d"

STATEMENTS = said("duckdb", outcome="refused")
# Asking for all memory or all time: refused or cut short, and the service answers afterwards.
GREEDY = [
    *called("duckdb", "greedy"),
    corpus.HOGS[2],
    corpus.HEEDING[1],
    corpus.HEEDING[2],
    "SELECT " + "(" * 5000 + "1" + ")" * 5000,
    "SELECT " + "+".join(["1"] * 20000),
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
            **places(self.folder, self.service.home, self.folder / "neighbour"),
            "url": self.url,
            "port": self.url.rpartition(":")[2],
            "data": str(self.service.database),
            "temp": str(self.service.home / "temp"),
        }

    def check(self) -> None:
        assert [entry.name for entry in self.folder.iterdir()] == ["canary.csv"]
        assert (self.folder / "canary.csv").read_text() == f"secret\n{SECRET}\n"
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
    (folder / "canary.csv").write_text(f"secret\n{SECRET}\n")
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
    assert SECRET in Path(around.places["canary"]).read_text()
    port = int(around.url.rpartition(":")[2])
    with socket.create_connection(("127.0.0.1", port)) as probe:
        probe.sendall(b"probe")
    until(lambda: bool(around.visits), "the listener to be visited")
    around.visits.clear()


@pytest.mark.parametrize("template", one_in(3, STATEMENTS))
def test_a_hostile_statement_is_refused_and_touches_nothing(
    around: Surroundings, template: str
) -> None:
    response = around.service.post(fill(template, around.places))
    assert response.status_code == 400, response.text
    assert list(response.json()) == ["error"]
    assert SECRET not in response.text
    around.check()


@pytest.mark.parametrize("sql", one_in(3, GREEDY), ids=lambda sql: sql[:40])
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
        # On a slow machine it may be one that does not obey, and health says so then.
        assert client.get("/health").status_code in (200, 503)
    assert worked_s(service) - before < 5
    until(lambda: _kept(service), "the rows are answered")


def _kept(service: Service) -> bool:
    """Whether the rows are answered; a process that ended for a statement is started again."""
    assert service.process is not None
    if service.process.poll() is not None:
        service.start()
    try:
        answer = service.post("SELECT sum(i) FROM kept")
    except httpx.TransportError:
        return False
    return answer.status_code == 200 and answer.json()["rows"] == [[3]]


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
