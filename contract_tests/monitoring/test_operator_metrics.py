"""The operator's metrics: on a port of their own, of all processes together."""

import asyncio
import json
import os
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import httpx
import pytest
from prometheus_client.parser import text_string_to_metric_families

import control
from contract_tests.api.harness import House
from contract_tests.cell.rig import until
from contract_tests.databases import Databases
from control.monitoring import measures
from control.monitoring.measures import Measure
from gateway.figures import FILE, Figures
from menagerie.access import AccessLog
from menagerie.errors import SettingsError
from menagerie.monitoring import collectors, kept_figures, pool, server
from menagerie.monitoring.server import MetricsServer
from specserver import instruments

Found = dict[str, dict[tuple[tuple[str, str], ...], float]]


@pytest.fixture(scope="module")
def house(databases: Databases, tmp_path_factory: pytest.TempPathFactory) -> Iterator[House]:
    with House(databases.migrated("sqlite"), tmp_path_factory.mktemp("house")) as made:
        yield made


@pytest.fixture(scope="module")
def port(house: House, tmp_path_factory: pytest.TempPathFactory) -> Iterator[int]:
    folder = tmp_path_factory.mktemp("gateway")
    figures = Figures(2)
    figures.count("accepted", 3)
    figures.use_column(1)
    figures.count("unknown", 2)
    figures.count("a reason of a later release")
    figures.write(folder)
    kept = kept_figures.KeptFigures()
    looked_up = [
        collectors.MeasureCollector(house.database, measures.collect(control)),
        collectors.GatewayCollector(folder / FILE),
    ]
    served = MetricsServer(kept, looked_up)
    instruments.listen(kept)
    yield served.start("127.0.0.1", 0)
    instruments.listen(None)
    served.stop()


def scraped(port: int) -> Found:
    answer = httpx.get(f"http://127.0.0.1:{port}/metrics")
    assert answer.status_code == 200
    found: Found = {}
    for family in text_string_to_metric_families(answer.text):
        for sample in family.samples:
            labels = tuple(sorted(sample.labels.items()))
            found.setdefault(sample.name, {})[labels] = sample.value
    return found


def test_requests_are_counted_by_operation_and_status(house: House, port: int) -> None:
    async def ask(path: str) -> int:
        transport = httpx.ASGITransport(AccessLog(house.app))
        async with httpx.AsyncClient(transport=transport, base_url="http://api") as client:
            return (await client.get(path)).status_code

    assert asyncio.run(ask("/v1/orgs/org_secret/metrics")) == 401
    assert asyncio.run(ask("/metrics")) == 404
    found = scraped(port)
    requests = found["menagerie_http_requests_total"]
    assert requests[("operation", "metrics.scrape"), ("status", "401")] == 1
    assert requests[("operation", "none"), ("status", "404")] == 1
    assert "org_secret" not in repr(found)


def test_work_cells_and_instances_are_told_of(house: House, port: int) -> None:
    tenant = house.tenant()
    house.instance(tenant, running=False)
    state = (("state", "due"), ("workflow", "instances.provision"))
    assert scraped(port)["menagerie_work_queued_operations"][state] == 1
    house.settle()
    found = scraped(port)
    done = (("outcome", "done"), ("workflow", "instances.provision"))
    assert found["menagerie_work_turns_total"][done] >= 1
    assert found["menagerie_instances"][("engine", "duckdb"), ("status", "running")] == 1
    (cell,) = [dict(labels) for labels in found["menagerie_cell_up"]]
    assert (cell["region"], cell["cell_id"][:5]) == ("local", "cell_")
    assert found["menagerie_database_up"][()] == 1
    assert tenant.org_id not in repr(found)


def test_the_gateway_is_told_of_while_it_writes(port: int, tmp_path: Path) -> None:
    found = scraped(port)
    assert found["menagerie_gateway_up"][()] == 1
    assert found["menagerie_gateway_accepted_connections_total"][()] == 3
    refused = found["menagerie_gateway_refused_connections_total"]
    assert refused[(("reason", "unknown"),)] == 2
    assert refused[(("reason", "other"),)] == 1
    file = tmp_path / FILE
    for content in ("", "[]", '{"written_at": "x"}', '{"written_at": 1, "counts": {"a": []}}'):
        file.write_text(content)
        assert list(collectors.GatewayCollector(file).collect()) == []
    file.write_text(json.dumps({"written_at": time.time() - 100, "counts": {}, "levels": {}}))
    (up,) = collectors.GatewayCollector(file).collect()
    assert up.samples[0].value == 0


def test_figures_of_a_worker_that_died_stay_and_what_it_had_open_does_not() -> None:
    figures = Figures(2)
    figures.count("accepted")
    figures.set_level("connections", 4)
    figures.clear_levels(0)
    assert (figures.total("accepted"), figures.total("connections")) == (1, 0)


def test_there_is_nothing_else_on_the_port(port: int) -> None:
    for method, path in (("GET", "/"), ("GET", "/v1/orgs"), ("POST", "/metrics")):
        assert httpx.request(method, f"http://127.0.0.1:{port}{path}").status_code == 404
    with pytest.raises(SettingsError, match="metrics_port: cannot listen"):
        MetricsServer(kept_figures.KeptFigures(), []).start("127.0.0.1", port)


def test_whoever_connects_and_is_silent_takes_neither_threads_nor_the_log(
    port: int, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(server._Handler, "timeout", 0.3)
    before = threading.active_count()
    with ExitStack() as opened:
        for _ in range(5 * server.CONNECTIONS_MAX):
            opened.enter_context(socket.create_connection(("127.0.0.1", port)))
        until(lambda: threading.active_count() > before, "they are waited for")
        assert threading.active_count() <= before + server.CONNECTIONS_MAX
        until(lambda: threading.active_count() <= before, "the silent ones were given up")
    until(lambda: "menagerie_database_up" in "".join(scraped(port)), "it answers again")
    assert "Traceback" not in capfd.readouterr().err


def test_it_listens_on_addresses_of_both_kinds() -> None:
    served = MetricsServer(kept_figures.KeptFigures(), [])
    try:
        port = served.start("::1", 0)
        assert httpx.get(f"http://[::1]:{port}/metrics").status_code == 200
    except SettingsError as error:
        pytest.skip(f"no IPv6 loopback: {error}")
    finally:
        served.stop()


def test_without_the_database_that_is_what_is_told(
    house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    from storage.errors import StorageUnavailable  # noqa: PLC0415 -- of this test alone

    def fail(_db: object) -> None:
        raise StorageUnavailable("the database is gone")

    broken = Measure("menagerie_broken", "Broken.", (), fail)  # type: ignore[arg-type]
    (only,) = collectors.MeasureCollector(house.database, [broken]).collect()
    assert (only.name, only.samples[0].value) == (collectors.DATABASE_UP, 0)


def test_labels_cannot_fill_the_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kept_figures, "SERIES_MAX", 3)
    kept = kept_figures.KeptFigures()
    for number in range(10):
        kept.add(pool.IN_USE, (), 1)
        from menagerie.access import REQUESTS  # noqa: PLC0415 -- as above

        kept.add(REQUESTS, (str(number), "200"), 1)
    (family,) = [each for each in kept.registry.collect() if each.name.endswith("requests")]
    assert len(family.samples) == 3


MANY = """
import os, sys
from menagerie.access import REQUESTS
from menagerie.monitoring.kept_figures import KeptFigures, process_ended
from menagerie.monitoring.pool import IN_USE
from specserver import instruments
kept = KeptFigures()
instruments.listen(kept)
for _ in range(2):
    child = os.fork()
    if not child:
        REQUESTS.add("a", "200")
        IN_USE.change(1)
        os._exit(0)
    os.waitpid(child, 0)
    process_ended(child)
REQUESTS.add("a", "200")
IN_USE.change(1)
for family in kept.all_processes().collect():
    for sample in family.samples:
        if sample.name.endswith(("requests_total", "in_use")):
            print(sample.name, sample.value)
"""


def test_processes_of_one_api_are_counted_together(tmp_path: Path) -> None:
    """What ended processes did still counts, and what they had open does not."""
    known = os.environ | {"PROMETHEUS_MULTIPROC_DIR": str(tmp_path)}
    ran = subprocess.run(
        [sys.executable, "-c", MANY], env=known, capture_output=True, text=True, check=False
    )
    assert sorted(ran.stdout.splitlines()) == [
        "menagerie_database_connections_in_use 1.0",
        "menagerie_http_requests_total 3.0",
    ], ran.stderr
