"""The parts run apart, on PostgreSQL: two API processes under gunicorn, a worker, cell, gateway."""

import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import httpx
import psutil
import pytest

from contract_tests.databases import Databases
from contract_tests.end_to_end.installation import Installation, order, query, reveal
from menagerie.settings import GATEWAY_PORTS

PARTS = ("cell", "gateway", "worker", "api")


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@pytest.fixture
def apart(tmp_path: Path, databases: Databases) -> Iterator[Installation]:
    url = databases.migrated("postgresql")
    home = tmp_path / "home"
    settings = {
        **{f"MENAGERIE_GATEWAY_{name.upper()}_PORT": "0" for name in GATEWAY_PORTS},
        "MENAGERIE_HOME": str(home),
        "MENAGERIE_DATABASE_URL": url,
        "MENAGERIE_PORT": str(free_port()),
        "MENAGERIE_GATEWAY_HTTPS_PORT": str(free_port()),
        "MENAGERIE_PROCESSES": "2",
        "MENAGERIE_RATE_LIMIT_STORAGE": "database",
    }
    environment = {**os.environ, **settings}
    command = [sys.executable, "-m", "menagerie"]
    subprocess.run([*command, "init"], env=environment, check=True, stdout=subprocess.DEVNULL)
    with (tmp_path / "log").open("wb") as log:
        running = [
            subprocess.Popen([*command, part], env=environment, stdout=log, stderr=log)
            for part in PARTS
        ]
        installation = Installation(home, settings)
        try:
            wait_until_ready(installation, tmp_path / "log")
            yield installation
        finally:
            for process in reversed(running):
                process.terminate()
            for process in running:
                process.wait(30)
            installation.destroy()
    databases.give_back(url)


def wait_until_ready(installation: Installation, log: Path) -> None:
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        try:
            with installation.api(timeout_s=5) as api:
                if api.get("/healthz").json()["status"] == "ok":
                    return
        except (httpx.HTTPError, ValueError):
            pass
        time.sleep(0.1)
    raise AssertionError(log.read_text())


def test_the_parts_together_are_the_service(apart: Installation) -> None:
    made = order(apart, name="apart")
    credential = reveal(apart, made["id"])
    credential["port"] = apart.endpoints["gateway_ports"]["https"]
    assert query(apart, credential, "SELECT 6 * 7").json()["rows"] == [[42]]
    masters = [
        process
        for process in psutil.process_iter(["cmdline"])
        if "menagerie.asgi:app" in (process.info["cmdline"] or [])
    ]
    assert len(masters) >= 3, "gunicorn's own process and two workers"
