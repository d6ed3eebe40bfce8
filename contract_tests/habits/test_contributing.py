"""What contributors' tools are given: valid, and of commands, files and hooks that there are."""

import json
import re
import subprocess
import sys
from typing import Any

import pytest
import yaml

from contract_tests.habits.test_sizes import ROOT
from tools.mutants.rooms import ROOMS

PAPERS = ("CONTRIBUTING.md", "SECURITY.md", "README.md")
CI = ROOT / ".github" / "workflows" / "ci.yml"
HOOKS = ROOT / ".pre-commit-config.yaml"
DEVCONTAINER = ROOT / ".devcontainer" / "devcontainer.json"


def read(path: Any) -> dict[str, Any]:
    return dict(yaml.safe_load(path.read_text()))


def test_every_make_target_that_is_named_exists() -> None:
    targets = set(re.findall(r"^([a-z][a-z-]*):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    texts = [(ROOT / name).read_text() for name in PAPERS]
    texts += [CI.read_text(), HOOKS.read_text(), DEVCONTAINER.read_text()]
    named = set(
        re.findall(r"(?:^ {4}|`|&& |: |\[|, )make ([a-z-]+)", "\n".join(texts), re.MULTILINE)
    )
    assert {"check", "test", "test-nightly", "install-dev", "serve"} <= named <= targets


def test_ci_runs_what_contributors_run() -> None:
    jobs = read(CI)["jobs"]
    assert jobs["change"]["strategy"]["matrix"]["command"] == ["make check", "make test"]
    assert jobs["nightly"]["steps"][-1] == {"run": "make test-nightly"}
    assert jobs["random-order"]["steps"][-1] == {"run": "make test ARGS='--order random'"}
    mutated = jobs["mutants"]
    assert mutated["strategy"]["matrix"]["room"] == [*ROOMS]
    assert mutated["steps"][-1] == {"run": "make mutants ROOM=${{ matrix.room }}"}
    used = [step["uses"] for job in jobs.values() for step in job["steps"] if "uses" in step]
    assert used
    assert not [one for one in used if not re.search(r"@(v\d+\.\d+\.\d+|[0-9a-f]{40})$", one)]


def test_every_folder_of_tests_is_named_and_no_other() -> None:
    text = (ROOT / "CONTRIBUTING.md").read_text()
    (told,) = re.findall(
        r"^Tests are in folders named.*?\. `tools/", text, re.MULTILINE | re.DOTALL
    )
    folders = {each.name for each in (ROOT / "contract_tests").iterdir() if each.is_dir()}
    assert set(re.findall(r"`(\w+)`", told)) == folders - {"__pycache__"}


@pytest.mark.parametrize(
    "tool", ["bench", "lint_document", "mutants", "new_operation", "run_tests"]
)
def test_a_tool_says_how_it_is_used(tool: str) -> None:
    command = [sys.executable, "-m", f"tools.{tool}", "--help"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert f"usage: python -m tools.{tool}" in done.stdout


def test_yaml_of_tools_passes_the_lint() -> None:
    command = [sys.executable, "-m", "yamllint", "--strict", ".github", ".pre-commit-config.yaml"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout


def test_no_name_is_written_twice_in_a_mapping_of_a_document() -> None:
    """The last would count, and nobody be told: the documents' own lint sees what is read."""
    listed = subprocess.run(
        ["git", "ls-files", "*.yaml"], cwd=ROOT, capture_output=True, text=True, check=True
    )
    rules = "{rules: {key-duplicates: enable}}"
    command = [sys.executable, "-m", "yamllint", "-d", rules, *listed.stdout.split()]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout


def test_hooks_are_local_and_of_the_locked_tools() -> None:
    repositories = read(HOOKS)["repos"]
    assert {one["repo"] for one in repositories} == {"local"}
    entries = [hook["entry"] for one in repositories for hook in one["hooks"]]
    assert not [one for one in entries if not one.startswith((".venv/bin/", "make "))]


def test_the_development_container_is_one() -> None:
    container = json.loads(DEVCONTAINER.read_text())
    assert container["image"].startswith("python:3.")
    assert str(container["forwardPorts"][0]) in container["portsAttributes"]


def test_every_link_and_folder_of_the_papers_exists() -> None:
    for name in PAPERS:
        text = (ROOT / name).read_text()
        files = re.findall(r"\]\((?!\w+:)([^)#]+)", text)
        files += re.findall(r"`((?:contract_tests|storage|docs|tools)/[\w/]+)`", text)
        assert not [one for one in files if not (ROOT / one).exists()], name
