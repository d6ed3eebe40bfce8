"""Tests that do not end are ended, and where they were is told."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from cell.runtime.process import is_there
from contract_tests.habits.test_sizes import ROOT
from tools import run_tests


def test_tests_that_do_not_end_are_ended_and_their_processes_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(run_tests, "_STUCK_WHOLE", 1)
    waiting = ["sh", "-c", f"sleep 61 & echo $! > {tmp_path}/pid; wait"]
    assert run_tests._watched(waiting, dict(os.environ), 1) == 1
    told = capfd.readouterr().out
    assert "these are their processes" in told
    assert "sleeping sleep 61" in told
    assert not is_there(int((tmp_path / "pid").read_text()))


STUCK = """
import time, pytest

@pytest.fixture
def stuck():
    yield
    while True:
        try:
            time.sleep(60)
        except BaseException:
            pass

@pytest.mark.timeout(1)
def test_stuck(stuck):
    time.sleep(60)

def test_after():
    pass
"""


@pytest.mark.nightly
def test_a_test_that_cannot_be_ended_ends_its_worker_and_is_told(tmp_path: Path) -> None:
    """Its fixtures wait after it was told to fail, which nothing ends twice."""
    (tmp_path / "test_stuck.py").write_text(STUCK)
    (tmp_path / "conftest.py").write_text(
        "from contract_tests.stuck import pytest_exception_interact\n"
    )
    words = ["-o", "faulthandler_timeout=3", "-o", "faulthandler_exit_on_timeout=true", "-n1"]
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", *words, str(tmp_path)],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    assert "2 failed, 1 passed" in done.stdout
    assert "crashed while running 'test_stuck.py::test_stuck'" in done.stdout
    assert "in stuck" in done.stdout + done.stderr
