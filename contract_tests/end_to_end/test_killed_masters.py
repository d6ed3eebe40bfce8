"""Who starts processes is killed with -9: what it started ends too, and a new start takes over."""

import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import httpx
import psutil
import pytest

from contract_tests.cell.rig import until
from contract_tests.end_to_end.installation import Installation, order, query, reveal
from contract_tests.end_to_end.test_faults import answers
from contract_tests.kept_port import KeptPort


@pytest.fixture
def port() -> Iterator[int]:
    with KeptPort() as kept:
        yield kept.number


# By day one is killed under load, and the next has the port (test_killed_control_plane).
@pytest.mark.nightly
def test_workers_of_a_killed_api_end_and_the_next_start_has_the_port(
    tmp_path: Path, port: int
) -> None:
    settings = {"MENAGERIE_HOME": str(tmp_path / "home0"), "MENAGERIE_PORT": str(port)}
    environment = {"PATH": "/usr/bin:/bin", **settings}
    command = [sys.executable, "-m", "menagerie"]
    subprocess.run([*command, "init"], env=environment, check=True, stdout=subprocess.DEVNULL)
    log = tmp_path / "log"

    def start() -> subprocess.Popen[bytes]:
        with log.open("ab") as output:
            return subprocess.Popen(
                [*command, "api"], env=environment, stdout=output, stderr=output
            )

    master = start()
    try:
        until(lambda: serves(port), "the API serves")
        workers = psutil.Process(master.pid).children()
        assert workers
        master.kill()
        master.wait()
        master = start()
        until(lambda: not any(each.is_running() for each in workers), "its workers end with it")
        until(lambda: serves(port), "the next one serves")
    finally:
        master.terminate()
        master.wait()
    assert "Traceback" not in log.read_text()


@pytest.mark.nightly
def test_a_serve_that_follows_a_killed_one_waits_for_its_parts(
    fresh: Callable[..., Installation], port: int
) -> None:
    installation = fresh()
    with KeptPort() as https:
        ports = ("--port", str(port), "--gateway-https-port", str(https.number))
        installation.start(*ports)
        made = order(installation)
        credential = reveal(installation, made["id"])
        assert query(installation, credential, "CREATE TABLE kept AS SELECT 1 AS n").is_success
        parts = [installation.part(name) for name in ("api", "cell", "gateway")]
        installation.stop(signal.SIGKILL)
        installation.start(*ports)
        assert not any(part.is_running() for part in parts)
        until(lambda: answers(installation, credential), "the instance is back")
        assert query(installation, credential, "SELECT n FROM kept").json()["rows"] == [[1]]
    assert "cannot listen" not in installation.log
    assert "part exited" not in installation.log


def serves(port: int) -> bool:
    """Whether it answers at all: without a cell it is not well."""
    try:
        return bool(httpx.get(f"http://127.0.0.1:{port}/healthz", verify=False).json())
    except (httpx.HTTPError, ValueError):
        return False
