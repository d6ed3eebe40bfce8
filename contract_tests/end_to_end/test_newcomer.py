"""A newcomer's first minutes: the printed walk as pasted, the files, a stop and a second start.

The second start finds a home that lies open and a cell that told of no engine, and somebody waits.
"""

import contextlib
import json
import os
import re
import shutil
import stat
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import update

from contract_tests.cell.rig import until
from contract_tests.end_to_end.installation import (
    READY_S,
    Installation,
    order,
    query,
    reveal,
    wait_for,
)
from contract_tests.end_to_end.test_wait import waits
from menagerie import home as homes
from storage.catalogue.cells import Cell
from storage.database import Database


@dataclass(frozen=True)
class Start:
    """What one start printed, and the files and answers that there were while it ran."""

    printed: str
    endpoints: dict[str, Any]
    mode: int
    kept: Any


@dataclass(frozen=True)
class Wait:
    """What `menagerie wait` said first, and at its end; and what there was by then."""

    said: str
    told: str
    status: int
    health: str
    engines: list[str]


@dataclass(frozen=True)
class Life:
    """A home that was served twice; `exposed` before and after the second start."""

    first: Start
    second: Start
    walked: subprocess.CompletedProcess[str] | None
    password: str
    log: str
    exposed: tuple[list[Path], list[Path]]
    readable: list[str]
    has_socket: bool
    wait: Wait


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
        walked = walk(printed) if shutil.which("curl") else None
        assert installation.stop() == 0
        # What was killed may still be on its way out; what was left does not go.
        until(lambda: not installation.processes(), "nothing is left of it")
        before = opened(installation.home)
        printed, wait = started_again(installation)
        after = list(homes.exposed(installation.home))
        readable = readable_by_others(installation.home)
        has_socket = (installation.home / "cell" / "run" / "cell.sock").is_socket()
        wait_for(installation, made["id"], "running")
        port = installation.endpoints["gateway_ports"]["https"]
        second = lived(installation, printed, credential | {"port": port})
        yield Life(
            *(first, second, walked, credential["password"], installation.log),
            *((before, after), readable, has_socket, wait),
        )
    finally:
        installation.destroy()


def opened(home: Path) -> list[Path]:
    """As former versions, copies and hands leave it; what others may read."""
    home.chmod(0o755)
    for path in home.iterdir():
        path.chmod(0o755 if path.is_dir() else 0o644)
    shutil.copyfile(home / "menagerie.db", home / "menagerie.db.backup")
    return list(homes.exposed(home))


def readable_by_others(home: Path) -> list[str]:
    """But for what instances have, whose engines are other users, and certificates."""
    found = []
    for folder, folders, files in os.walk(home):
        folders[:] = [name for name in folders if not name.startswith("inst_")]
        for path in (Path(folder), *(Path(folder, name) for name in files)):
            with contextlib.suppress(FileNotFoundError):
                is_open = path.lstat().st_mode & 0o066
                if is_open and path.suffix != ".pem" and not path.is_symlink():
                    found.append(str(path))
    return found


def started_again(installation: Installation) -> tuple[str, Wait]:
    """With somebody who waits for it. It blocks until the cell has told its engines."""
    # As a former start's description would be: of a machine with nothing installed.
    database = Database(f"sqlite:///{installation.home / 'menagerie.db'}")
    with database.write() as db:
        db.execute(update(Cell).values(engines=[]))
    database.dispose()
    # Nobody may listen by chance where it listened.
    file = installation.home / "endpoints.json"
    file.write_text(json.dumps(installation.endpoints | {"base_url": "http://127.0.0.1:1"}))
    with waits(installation.home, "--timeout", "120") as process:
        assert process.stderr is not None
        said = process.stderr.readline()
        printed = installation.start()
        with installation.api() as api:
            health = str(api.get("/healthz").json()["status"])
            engines = [one["id"] for one in api.get("/v1/engines").json() if one["versions"]]
        told, _ = process.communicate(timeout=60)
    return printed, Wait(said, told, process.returncode, health, engines)


def lived(installation: Installation, printed: str, credential: dict[str, Any]) -> Start:
    return Start(
        printed,
        installation.endpoints,
        stat.S_IMODE((installation.home / "endpoints.json").stat().st_mode),
        query(installation, credential, "SELECT n FROM kept").json()["rows"],
    )


def walk(printed: str) -> subprocess.CompletedProcess[str]:
    pasted = printed.split("Paste:")[1].split("Or run the same", maxsplit=1)[0]
    return subprocess.run(
        ["bash", "-c", pasted], capture_output=True, text=True, timeout=110, check=False
    )


@pytest.mark.skipif(not shutil.which("curl"), reason="curl is not installed")
@pytest.mark.parametrize("which", ["first", pytest.param("second", marks=pytest.mark.nightly)])
def test_the_printed_walk_works_as_pasted(life: Life, which: str) -> None:
    walked = life.walked if which == "first" else walk(life.second.printed)
    assert walked is not None
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


def test_a_wait_blocks_until_the_cell_has_told_its_engines(life: Life) -> None:
    assert "waiting: nothing answers at" in life.wait.said
    assert life.wait.health == "ok"
    assert "duckdb" in life.wait.engines
    assert life.wait.status == 0
    assert life.wait.told == f"Menagerie is ready: {life.second.endpoints['base_url']}\n"


def test_a_home_that_lies_open_is_closed(life: Life) -> None:
    before, after = life.exposed
    assert "menagerie.db" in {path.name for path in before}
    assert after == []
    assert life.readable == []
    assert life.has_socket


@pytest.mark.nightly
def test_a_second_serve_on_the_same_home_is_refused(installation: Installation) -> None:
    second = Installation(installation.home)
    with pytest.raises(AssertionError, match="ended before it was ready"):
        second.start()
    assert second.process is not None
    assert second.process.wait(READY_S) == 2
    assert f"running on {installation.home}" in installation.log


@pytest.mark.nightly
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


# By day of each request by itself: boundary/.
@pytest.mark.nightly
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
