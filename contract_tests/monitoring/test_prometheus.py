"""A real Prometheus scrapes both sources of metrics; several processes of the API answer as one."""

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import httpx
import psutil
import pytest

from contract_tests.databases import Databases
from contract_tests.end_to_end.installation import READY_S, Installation, order
from contract_tests.kept_port import KeptPort
from contract_tests.monitoring.test_monitoring_page import FOLDER, expressions

RULES = FOLDER / "alerts.yml"


def program(name: str) -> str:
    found = shutil.which(name)
    if found is None:
        pytest.skip(f"{name} is not installed")
    return found


@pytest.mark.nightly
def test_promtool_accepts_the_rules_and_what_dashboards_ask(tmp_path: Path) -> None:
    promtool = program("promtool")
    asked = [
        each
        for file in ("org-dashboard.json", "operator-dashboard.json")
        for each in expressions(json.loads((FOLDER / file).read_text(encoding="utf-8")))
    ]
    rules = [
        {"record": f"asked:{number}", "expr": each.replace("$__rate_interval", "5m")}
        for number, each in enumerate(asked)
    ]
    dashboards = tmp_path / "dashboards.yml"
    dashboards.write_text(json.dumps({"groups": [{"name": "dashboards", "rules": rules}]}))
    for file in (RULES, dashboards):
        ran = subprocess.run(
            [promtool, "check", "rules", "--lint=all", "--lint-fatal", str(file)],
            capture_output=True,
            text=True,
            check=False,
        )
        assert ran.returncode == 0, ran.stdout + ran.stderr


@dataclass
class Api:
    """`menagerie api` of two processes, and the port of its metrics."""

    process: subprocess.Popen[bytes]
    port: int
    metrics_port: int
    key: str
    org_id: str
    temporary: Path
    log: Path

    @property
    def folders(self) -> list[Path]:
        """Of the figures that its processes share."""
        return list(self.temporary.iterdir())

    @property
    def workers(self) -> list[psutil.Process]:
        return psutil.Process(self.process.pid).children()

    def is_ready(self) -> bool:
        return self.request("/v1/me").status_code == 200 and bool(self.operator_metrics())

    def request(self, path: str) -> httpx.Response:
        headers = {"Authorization": f"Bearer {self.key}"}
        return httpx.get(f"http://127.0.0.1:{self.port}{path}", headers=headers, timeout=20)

    def counted(self) -> float:
        """Requests for the organization, over all processes."""
        name = 'menagerie_http_requests_total{operation="orgs.get",status="200"}'
        lines = self.operator_metrics().splitlines()
        return sum(float(each.split()[-1]) for each in lines if each.startswith(name))

    def operator_metrics(self) -> str:
        answer = httpx.get(f"http://127.0.0.1:{self.metrics_port}/metrics", timeout=20)
        assert answer.status_code == 200
        return answer.text


def until(condition: Callable[[], Any], log: Path) -> Any:
    """What it returns once that is true; it may fail to connect until then."""
    deadline = time.monotonic() + READY_S
    while True:
        try:
            found = condition()
        except (httpx.TransportError, psutil.Error, LookupError):
            found = None
        if found:
            return found
        assert time.monotonic() < deadline, log.read_text()
        time.sleep(0.1)


@contextmanager
def running(environment: dict[str, str], log: Path) -> Iterator[subprocess.Popen[bytes]]:
    command = [sys.executable, "-P", "-m", "menagerie", "api"]
    with log.open("ab") as output:
        process = subprocess.Popen(command, env=environment, stdout=output, stderr=output)
    try:
        yield process
    finally:
        process.terminate()
        process.wait(READY_S)


@pytest.fixture
def environment(tmp_path: Path, databases: Databases) -> Iterator[dict[str, str]]:
    url = databases.migrated("postgresql")
    (tmp_path / "temporary").mkdir()
    with KeptPort() as port, KeptPort() as metrics_port:
        yield os.environ | {
            "MENAGERIE_HOME": str(tmp_path / "home"),
            "MENAGERIE_DATABASE_URL": url,
            "MENAGERIE_RATE_LIMIT_STORAGE": "database",
            "MENAGERIE_PROCESSES": "2",
            "MENAGERIE_PORT": str(port.number),
            "MENAGERIE_METRICS_PORT": str(metrics_port.number),
            "TMPDIR": str(tmp_path / "temporary"),
        }
    databases.give_back(url)


@pytest.fixture
def api(environment: dict[str, str], tmp_path: Path) -> Iterator[Api]:
    command = [sys.executable, "-m", "menagerie", "init"]
    subprocess.run(command, env=environment, check=True, stdout=subprocess.DEVNULL)
    found = json.loads((tmp_path / "home" / "endpoints.json").read_text())
    with running(environment, tmp_path / "log") as process:
        made = Api(
            process,
            port=int(environment["MENAGERIE_PORT"]),
            metrics_port=int(environment["MENAGERIE_METRICS_PORT"]),
            key=found["api_key"],
            org_id=found["org_id"],
            temporary=tmp_path / "temporary",
            log=tmp_path / "log",
        )
        until(lambda: len(made.workers) == 2 and made.is_ready(), made.log)
        yield made


@pytest.mark.nightly
def test_what_the_processes_counted_is_told_together_and_outlives_them(
    api: Api, environment: dict[str, str]
) -> None:
    for number in range(1, 21):
        assert api.request(f"/v1/orgs/{api.org_id}").status_code == 200
        # Whichever process takes the scrape.
        assert api.counted() == number
    (kept,) = api.folders
    assert kept.stat().st_mode & 0o077 == 0
    killed = api.workers[0]
    killed.kill()
    until(lambda: killed.pid not in {each.pid for each in api.workers}, api.log)
    until(lambda: len(api.workers) == 2 and api.is_ready(), api.log)
    assert until(api.counted, api.log) == 20
    api.process.send_signal(signal.SIGHUP)
    before = {each.pid for each in api.workers}
    until(lambda: before.isdisjoint({each.pid for each in api.workers}), api.log)
    until(lambda: len(api.workers) == 2 and api.is_ready(), api.log)
    assert until(api.counted, api.log) == 20
    api.process.terminate()
    assert api.process.wait(READY_S) == 0
    assert api.folders == []
    with running(environment, api.log) as process:
        again = replace(api, process=process)
        until(again.is_ready, api.log)
        assert again.counted() == 0
        assert len(again.folders) == 1


@pytest.mark.nightly
def test_a_prometheus_scrapes_the_organization_and_the_service(tmp_path: Path) -> None:
    with KeptPort() as metrics_port:
        settings = {"MENAGERIE_METRICS_PORT": str(metrics_port.number)}
        installation = Installation(tmp_path / "home", settings)
        try:
            installation.start()
            order(installation, name="sales")
            with scraping(tmp_path, installation.endpoints, metrics_port.number) as url:
                look_at_what_it_scraped(url, tmp_path / "prometheus.log")
        finally:
            installation.destroy()


def jobs(key: Path, endpoints: dict[str, Any], metrics_port: int) -> list[dict[str, Any]]:
    key.write_text(endpoints["api_key"])
    return [
        {
            "job_name": "organization",
            "metrics_path": f"/v1/orgs/{endpoints['org_id']}/metrics",
            "authorization": {"credentials_file": str(key)},
            "static_configs": [{"targets": [endpoints["base_url"].removeprefix("http://")]}],
        },
        {
            "job_name": "service",
            "static_configs": [{"targets": [f"127.0.0.1:{metrics_port}"]}],
        },
    ]


@contextmanager
def scraping(tmp_path: Path, endpoints: dict[str, Any], metrics_port: int) -> Iterator[str]:
    """A Prometheus at this URL, with the rules of the guide."""
    settings = {
        "global": {"scrape_interval": "1s", "scrape_timeout": "1s"},
        "rule_files": [str(RULES)],
        "scrape_configs": jobs(tmp_path / "key", endpoints, metrics_port),
    }
    (tmp_path / "prometheus.yml").write_text(json.dumps(settings))
    with KeptPort() as port, (tmp_path / "prometheus.log").open("wb") as log:
        command = [program("prometheus"), f"--config.file={tmp_path / 'prometheus.yml'}"]
        command += [f"--storage.tsdb.path={tmp_path / 'series'}"]
        command += [f"--web.listen-address=127.0.0.1:{port.number}"]
        server = subprocess.Popen(command, stdout=log, stderr=log)
        try:
            yield f"http://127.0.0.1:{port.number}/api/v1"
        finally:
            server.terminate()
            server.wait(READY_S)


def look_at_what_it_scraped(url: str, log: Path) -> None:
    def told(path: str, **asked: str) -> dict[str, Any]:
        return dict(httpx.get(f"{url}/{path}", params=asked).json()["data"])

    def targets() -> list[dict[str, Any]]:
        return [each for each in told("targets")["activeTargets"] if each["health"] != "unknown"]

    def samples(query: str) -> list[dict[str, Any]]:
        return list(told("query", query=query)["result"])

    until(lambda: len(targets()) == 2, log)
    assert [each["lastError"] for each in targets()] == ["", ""]
    (info,) = until(lambda: samples("menagerie_instance_info"), log)
    assert info["metric"]["name"] == "sales"
    (limit,) = samples("menagerie_instance_memory_limit_bytes")
    assert limit["value"][1] == str(2**30)
    assert samples("menagerie_http_requests_total")
    (up,) = samples("menagerie_database_up")
    assert up["value"][1] == "1"
    rules = [rule for group in told("rules")["groups"] for rule in group["rules"]]
    assert {each["health"] for each in rules} <= {"ok", "unknown"}
