"""A machine that has all the tests need skips nothing but what is listed."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from contract_tests import kernel, skips
from contract_tests.habits.test_sizes import ROOT


@pytest.mark.parametrize(
    "reason",
    [
        "no driver found mysql  on this machine",
        "Skipped: no driver found timescaledb  on this machine",
        "only valkey 9.1 runs here",
    ],
)
def test_what_is_listed_may_be_skipped(reason: str) -> None:
    assert skips.complaint(reason) is None


@pytest.mark.parametrize(
    "reason",
    [
        "no driver found postgres 18 on this machine",
        "only postgres 18 runs here",
        "curl is not installed",
        "the wheel with PostgreSQL is not installed",
    ],
)
def test_anything_else_may_not_and_what_to_do_is_said(reason: str) -> None:
    told = skips.complaint(reason)
    assert told is not None
    assert told.startswith(reason)
    assert "tools/system-packages" in told


@pytest.mark.parametrize("can", [True, False])
def test_what_confines_is_excused_by_the_kernel_alone(
    can: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kernel, "can_hold", lambda means: means != "memory" or can)
    for reason in (
        "memory is not enforced: switched off",
        "memory is not limited here",
        "nothing holds a neighbour here",
    ):
        assert (skips.complaint(reason) is None) is not can


SKIPPING = """
import pytest

def test_within():
    pytest.skip("psql is not installed")

@pytest.mark.skipif(True, reason="curl is not installed")
def test_before():
    pass

def test_listed():
    pytest.skip("only redis 7.0 runs here")
"""


@pytest.mark.parametrize(
    ("surroundings", "ended"),
    [({}, "3 skipped"), ({"CI": "true"}, "1 failed, 1 skipped, 1 error")],
    ids=["anywhere", "held"],
)
def test_a_skip_that_is_not_listed_fails_the_run(
    surroundings: dict[str, str], ended: str, tmp_path: Path
) -> None:
    (tmp_path / "test_skipping.py").write_text(SKIPPING)
    plain = {name: value for name, value in os.environ.items() if name != "CI"}
    plain.pop(skips.LISTED_ONLY, None)
    words = ["-p", "contract_tests.skips", "-p", "no:cacheprovider", "-c", os.devnull]
    done = subprocess.run(
        [sys.executable, "-m", "pytest", *words, str(tmp_path)],
        cwd=ROOT,
        env=plain | surroundings,
        capture_output=True,
        text=True,
        check=False,
    )
    assert ended in done.stdout, done.stdout
    assert done.returncode == (1 if surroundings else 0)
    assert ("psql is not installed: may not be skipped here" in done.stdout) == bool(surroundings)
