"""The tests are collected as `make mutants` collects them, by one process without pytest-xdist."""

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def test_the_tests_need_no_xdist() -> None:
    command = [sys.executable, "-m", "pytest", "-p", "no:xdist", "-p", "timeout", "--collect-only"]
    chosen = [*command, "-q", "contract_tests/policy/test_figures.py"]
    done = subprocess.run(chosen, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
