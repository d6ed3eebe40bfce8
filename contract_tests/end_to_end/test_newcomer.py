"""A newcomer's first minutes: the printed walk as pasted, the files, a stop and a second start."""

import os
import re
import shutil
import stat
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from contract_tests.cell.rig import until
from contract_tests.end_to_end.installation import (
    READY_S,
    Installation,
    order,
    query,
    reveal,
    wait_for,
)

needs_curl = pytest.mark.skipif(not shutil.which("curl"), reason="curl is not installed")


@needs_curl
def test_the_printed_walk_works_as_pasted(tmp_path: Path) -> None:
    # And deep: the path of a socket may not pass 107 bytes.
    installation = Installation(tmp_path / "a home with spaces" / ("deep" * 20))
    try:
        walks(installation, installation.start())
        installation.stop()
        walks(installation, installation.start())
    finally:
        installation.destroy()


def walks(installation: Installation, printed: str) -> None:
    walk = printed.split("Paste:")[1].split("Or run the same", maxsplit=1)[0]
    done = subprocess.run(
        ["bash", "-c", walk], capture_output=True, text=True, timeout=110, check=False
    )
    assert '"rows":[[42]]' in done.stdout, (done.stdout, done.stderr, installation.log)
    assert '"columns":["answer"]' in done.stdout


def test_secrets_are_shown_once_and_kept_in_a_private_file(
    fresh: Callable[..., Installation],
) -> None:
    installation = fresh()
    printed = installation.start()
    endpoints = installation.endpoints
    assert endpoints["api_key"] in printed
    assert endpoints["session_token"] in printed
    assert set(endpoints) == {
        "base_url",
        "ca_file",
        "org_id",
        "project_id",
        "api_key",
        "session_token",
        "gateway_ports",
    }
    mode = stat.S_IMODE((installation.home / "endpoints.json").stat().st_mode)
    assert mode == 0o600
    made = order(installation, name="kept", size="f0")
    credential = reveal(installation, made["id"])
    written = query(installation, credential, "CREATE TABLE kept AS SELECT 7 AS n")
    assert written.status_code == 200, written.text

    assert installation.stop() == 0
    # What was killed may still be on its way out; what was left does not go.
    until(lambda: not installation.processes(), "nothing is left of it")

    printed = installation.start()
    assert endpoints["api_key"] not in printed
    assert installation.endpoints["api_key"] == endpoints["api_key"]
    wait_for(installation, made["id"], "running")
    port = installation.endpoints["gateway_ports"]["https"]
    answer = query(installation, credential | {"port": port}, "SELECT n FROM kept")
    assert answer.json()["rows"] == [[7]]
    assert endpoints["api_key"] not in installation.log
    assert credential["password"] not in installation.log


def test_a_second_serve_on_the_same_home_is_refused(installation: Installation) -> None:
    second = Installation(installation.home)
    with pytest.raises(AssertionError, match="ended before it was ready"):
        second.start()
    assert second.process is not None
    assert second.process.wait(READY_S) == 2
    assert f"running on {installation.home}" in installation.log


def test_demo_walks_by_itself(installation: Installation) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "menagerie", "demo"],
        env={
            **os.environ,
            "MENAGERIE_HOME": str(installation.home),
            "XDG_CONFIG_HOME": str(installation.home / "xdg"),
            "XDG_CACHE_HOME": str(installation.home / "cache"),
        },
        capture_output=True,
        text=True,
        timeout=110,
        check=False,
    )
    assert done.returncode == 0, (done.stdout, done.stderr)
    assert re.search(r"SELECT", done.stdout)


def test_every_request_leaves_a_line_with_its_id(installation: Installation) -> None:
    with installation.api() as api:
        answer = api.get("/v1/me", headers={"X-Request-Id": "a-request-of-mine"})
    assert answer.headers["X-Request-Id"] == "a-request-of-mine"

    def written() -> list[str]:
        # The line is written behind the answer, and the last one may not be whole yet.
        whole = installation.log.rpartition("\n")[0]
        return [line for line in whole.splitlines() if "of-mine" in line]

    lines = until(written, "the request is in the log")
    for part in ("method=GET", "path=/v1/me", "status=200", "duration_ms="):
        assert part in lines[0]
