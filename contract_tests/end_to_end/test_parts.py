"""The parts run apart, on PostgreSQL: two API processes under gunicorn, a worker, cell, gateway."""

import contextlib
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

from contract_tests.cell.rig import until
from contract_tests.databases import Databases
from contract_tests.end_to_end.installation import (
    READY_S,
    Installation,
    order,
    query,
    reveal,
)
from contract_tests.kept_port import KeptPort
from menagerie.settings import GATEWAY_PORTS

PARTS = ("cell", "gateway", "worker", "api")


@pytest.fixture
def ports() -> Iterator[dict[str, str]]:
    with KeptPort() as api, KeptPort() as https:
        others = {f"MENAGERIE_GATEWAY_{name.upper()}_PORT": "0" for name in GATEWAY_PORTS}
        yield others | {
            "MENAGERIE_PORT": str(api.number),
            "MENAGERIE_GATEWAY_HTTPS_PORT": str(https.number),
        }


@pytest.fixture
def apart(tmp_path: Path, databases: Databases, ports: dict[str, str]) -> Iterator[Installation]:
    url = databases.migrated("postgresql")
    home = tmp_path / "home"
    settings = {
        **ports,
        "MENAGERIE_HOME": str(home),
        "MENAGERIE_DATABASE_URL": url,
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
                process.wait(READY_S)
            installation.destroy()
    databases.give_back(url)


def wait_until_ready(installation: Installation, log: Path) -> None:
    """The API, and the gateway too: of the parts none waits for another."""
    deadline = time.monotonic() + READY_S
    while not (serves_api(installation) and serves_gateway(installation)):
        assert time.monotonic() < deadline, log.read_text()
        time.sleep(0.1)


def serves_api(installation: Installation) -> bool:
    try:
        with installation.api(timeout_s=20) as api:
            return bool(api.get("/healthz").json()["status"] == "ok")
    except (httpx.HTTPError, ValueError):
        return False


def serves_gateway(installation: Installation) -> bool:
    port = installation.endpoints["gateway_ports"]["https"]
    try:
        socket.create_connection(("127.0.0.1", port), READY_S).close()
    except OSError:
        return False
    return True


@pytest.mark.nightly
def test_the_parts_together_are_the_service(apart: Installation) -> None:
    made = order(apart, name="apart")
    credential = reveal(apart, made["id"])
    credential["port"] = apart.endpoints["gateway_ports"]["https"]
    assert query(apart, credential, "SELECT 6 * 7").json()["rows"] == [[42]]
    # Only this home's: the other tests of this machine may run gunicorn too.
    until(lambda: len(of_gunicorn(apart)) == 3, "gunicorn's own process and two workers")


def of_gunicorn(installation: Installation) -> list[psutil.Process]:
    found = []
    for process in installation.processes():
        with contextlib.suppress(psutil.Error):
            # Its command, or the name that it gives itself where it can.
            if any("gunicorn" in word for word in process.cmdline()):
                found.append(process)
    return found
