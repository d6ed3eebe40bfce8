"""The walk of docs/access.md as pasted: from an invite to an instance that the budget shows."""

import os
import re
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from contract_tests.clients import test_control_plane
from contract_tests.clients.stand_in import ROOT
from contract_tests.clients.test_control_plane import Served
from contract_tests.workflows.letters import Letters

served = test_control_plane.served
PAGE = (ROOT / "docs" / "access.md").read_text(encoding="utf-8")
SECTION = PAGE.partition("## From an invite to an instance\n")[2].partition("\n## ")[0]
LINES = re.findall(r"^    (menagerie .*)$", SECTION, re.MULTILINE)
PASSWORD = "staple-of-nine-oaks"


@dataclass(frozen=True)
class Shell:
    """Of one person, at a machine of their own with the command line on it."""

    home: Path
    variables: dict[str, str]

    def run(self, line: str, typed: str = "") -> subprocess.CompletedProcess[str]:
        environ = {name: one for name, one in os.environ.items() if "MENAGERIE" not in name}
        environ |= {"HOME": str(self.home), "XDG_CONFIG_HOME": str(self.home / "config")}
        environ |= {"XDG_CACHE_HOME": str(self.home / "cache"), **self.variables}
        environ["PATH"] = f"{Path(sys.executable).parent}:{environ['PATH']}"
        return subprocess.run(
            ["bash", "-c", line],
            env=environ,
            input=typed,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )


def shell(folder: Path, name: str, **variables: str) -> Shell:
    (folder / name).mkdir()
    return Shell(folder / name, {f"MENAGERIE_{key}": one for key, one in variables.items()})


def filled_in(line: str, served: Served) -> str:
    """With what only those have who walk."""
    letters: Any = served.house.letters
    assert isinstance(letters, Letters)
    if "mi_…" in line:
        served.house.settle()
        found = re.search(r"accept (mi_\w+)", letters.last.text)
        assert found is not None
        line = line.replace("mi_…", found.group(1))
    return line.replace("https://api.databases.example.com", served.base_url)


def test_the_walk_is_there() -> None:
    assert len(LINES) >= 10
    assert any("--profile work" in line for line in LINES)


@pytest.mark.nightly
def test_the_walk_works_as_pasted(served: Served, tmp_path: Path) -> None:
    tenant = served.tenant
    served.house.change_org(tenant.org_id, slug="acme")
    tokens = {"API_KEY": tenant.key, "SESSION_TOKEN": tenant.owner.session}
    owner = shell(tmp_path, "owner", BASE_URL=served.base_url, ORG=tenant.org_id, **tokens)
    grace = shell(tmp_path, "grace")
    shown: dict[str, str] = {}
    for line in LINES:
        person = grace if "work" in line else owner
        ran = person.run(filled_in(line, served), typed=f"{PASSWORD}\n")
        assert ran.returncode == 0, (line, ran.stdout, ran.stderr)
        shown[" ".join(re.findall(r"[a-z-]+", line)[:3])] = ran.stdout + ran.stderr
    assert shown["menagerie access explain"].startswith("Allowed: instances:write is held by")
    assert "nothing is created yet" in shown["menagerie --profile work"]
    assert re.search(r"status +running", shown["menagerie instances get"])
    assert re.search(r"live_instances +1", shown["menagerie budgets get"])
    assert re.search(r"monthly_budget_cents +50000", shown["menagerie budgets get"])
