"""A newcomer's first minutes: the printed walk as pasted, the files, a stop and a second start."""

import os
import re
import shutil
import stat
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

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


@dataclass(frozen=True)
class Start:
    """What one start printed, and the files and answers that there were while it ran."""

    printed: str
    walked: subprocess.CompletedProcess[str] | None
    endpoints: dict[str, Any]
    mode: int
    kept: Any


@dataclass(frozen=True)
class Life:
    """A home that was served twice."""

    first: Start
    second: Start
    password: str
    log: str


@pytest.fixture(scope="module")
def life(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Life]:
    # Deep, and with spaces: the path of a socket may not pass 107 bytes.
    home = tmp_path_factory.mktemp("life") / "a home with spaces" / ("deep" * 20)
    installation = Installation(home)
    try:
        printed = installation.start()
        made = order(installation, name="kept", size="f0")
        credential = reveal(installation, made["id"])
        written = query(installation, credential, "CREATE TABLE kept AS SELECT 7 AS n")
        assert written.status_code == 200, written.text
        first = lived(installation, printed, credential)
        assert installation.stop() == 0
        # What was killed may still be on its way out; what was left does not go.
        until(lambda: not installation.processes(), "nothing is left of it")
        printed = installation.start()
        wait_for(installation, made["id"], "running")
        port = installation.endpoints["gateway_ports"]["https"]
        second = lived(installation, printed, credential | {"port": port})
        yield Life(first, second, credential["password"], installation.log)
    finally:
        installation.destroy()


def lived(installation: Installation, printed: str, credential: dict[str, Any]) -> Start:
    walk = printed.split("Paste:")[1].split("Or run the same", maxsplit=1)[0]
    command = ["bash", "-c", walk]
    has_curl = shutil.which("curl") is not None
    return Start(
        printed,
        subprocess.run(command, capture_output=True, text=True, timeout=110, check=False)
        if has_curl
        else None,
        installation.endpoints,
        stat.S_IMODE((installation.home / "endpoints.json").stat().st_mode),
        query(installation, credential, "SELECT n FROM kept").json()["rows"],
    )


@pytest.mark.skipif(not shutil.which("curl"), reason="curl is not installed")
@pytest.mark.parametrize("which", ["first", "second"])
def test_the_printed_walk_works_as_pasted(life: Life, which: str) -> None:
    walked = getattr(life, which).walked
    assert '"rows":[[42]]' in walked.stdout, (walked.stdout, walked.stderr, life.log)
    assert '"columns":["answer"]' in walked.stdout


def test_secrets_are_shown_once_and_kept_in_a_private_file(life: Life) -> None:
    endpoints = life.first.endpoints
    assert endpoints["api_key"] in life.first.printed
    assert endpoints["session_token"] in life.first.printed
    assert set(endpoints) == {
        "base_url",
        "ca_file",
        "org_id",
        "project_id",
        "api_key",
        "session_token",
        "gateway_ports",
    }
    assert (life.first.mode, life.second.mode) == (0o600, 0o600)
    assert endpoints["api_key"] not in life.second.printed
    assert life.second.endpoints["api_key"] == endpoints["api_key"]
    assert endpoints["api_key"] not in life.log
    assert life.password not in life.log


def test_what_was_written_is_there_after_a_second_start(life: Life) -> None:
    assert (life.first.kept, life.second.kept) == ([[7]], [[7]])


@pytest.mark.nightly
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
