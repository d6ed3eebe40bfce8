"""Each part may open as many files as the system lets it, and says so where that is too few."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from menagerie import open_files
from menagerie.doctor import machine

BY_NIGHT = ("worker", "cell")
LIMITED = (
    "import os, resource, sys; soft, hard, *words = sys.argv[1:];"
    "resource.setrlimit(resource.RLIMIT_NOFILE, (int(soft), int(hard)));"
    "os.execv(sys.executable, [sys.executable, *words])"
)
TELL = (
    "import json, resource; from menagerie import open_files;"
    "files = open_files.raise_limit();"
    "soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE);"
    "print(json.dumps([files, soft, hard, open_files.relayed(files)]))"
)


def limited(soft: int, hard: int, *words: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", LIMITED, str(soft), str(hard), *words]
    return subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)


def test_the_soft_limit_is_raised_to_the_hard_one() -> None:
    ended = limited(300, 2_048, "-c", TELL)
    assert json.loads(ended.stdout) == [2_048, 2_048, 2_048, 896], ended.stderr


# The worker begins as the API does, and a cell as the gateway.
@pytest.mark.nightly
@pytest.mark.parametrize(
    "part",
    ["api", "gateway", *(pytest.param(each, marks=pytest.mark.nightly) for each in BY_NIGHT)],
)
def test_a_part_that_may_open_too_few_does_not_start(part: str, tmp_path: Path) -> None:
    ended = limited(200, 512, "-m", "menagerie", part, "--home", str(tmp_path / "home"))
    assert ended.returncode == 2, ended.stderr
    (line,) = ended.stderr.splitlines()
    assert "this process may open 512 files, and at least 1024 are needed" in line
    assert "LimitNOFILE" in line


@pytest.mark.nightly
def test_a_cell_that_is_started_alone_does_the_same(tmp_path: Path) -> None:
    given = ("--home", str(tmp_path / "cell"), "--cell-id", "cell_a", "--control-public-key", "")
    ended = limited(200, 512, "-m", "cell", *given)
    assert (ended.returncode, ended.stderr.count("\n")) == (2, 1), ended.stderr
    assert "this process may open 512 files, and at least 1024 are needed" in ended.stderr


@pytest.mark.parametrize(
    ("hard", "status", "said"),
    [
        (512, "failure", "1024 are needed"),
        (4_096, "warning", "1920 connections"),
        (65_536, "ok", ""),
    ],
)
def test_doctor_tells(hard: int, status: str, said: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(open_files, "limits", lambda: (1_024, hard))
    (found,) = machine.files()
    assert (found.status, said in found.detail) == (status, True)
    assert (found.remedy is None) == (status == "ok")


def test_an_api_process_leaves_files_for_its_threads() -> None:
    assert open_files.connections(65_536, 16) == 10_000
    assert open_files.connections(1_024, 16) == 736
