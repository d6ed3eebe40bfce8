"""What docs/events.md shows is pasted as it is, against the real control plane."""

import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from contract_tests.api.harness import Tenant
from contract_tests.api.streams import happen
from contract_tests.clients.node_packages import node_modules
from contract_tests.clients.test_control_plane import Served, served
from contract_tests.end_to_end.command_line import hear_interrupts

__all__ = ["served"]

ROOT = Path(__file__).parents[2]
GUIDE = (ROOT / "docs" / "events.md").read_text()
DONE_S = 120


@pytest.fixture
def tenant(served: Served) -> Tenant:
    return served.house.tenant()


def block(begins: str) -> str:
    """The indented lines that begin so, up to the next that is not indented."""
    found = re.search(rf"^    {re.escape(begins)}.*\n(?:    .*\n|\n(?=    ))*", GUIDE, re.MULTILINE)
    assert found is not None, begins
    return "".join(line.removeprefix("    ") for line in found[0].splitlines(keepends=True))


@contextmanager
def happening(served: Served, tenant: Tenant, instance_id: str) -> Iterator[None]:
    """An event again and again: whoever follows from now on has not always begun to."""
    ended = threading.Event()

    def go_on() -> None:
        while not ended.wait(0.1):
            happen(served.house, tenant.org_id, instance_id)

    thread = threading.Thread(target=go_on)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()


def first_line(command: list[str], folder: Path, environment: dict[str, str], begins: str) -> str:
    """Of what it prints, the first that begins so; then it is interrupted."""
    with subprocess.Popen(
        command,
        cwd=folder,
        env=os.environ | environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
        preexec_fn=hear_interrupts,  # noqa: PLW1509 - one system call
    ) as process:
        assert process.stdout is not None
        alarm = threading.Timer(DONE_S, process.kill)
        alarm.start()
        said: list[str] = []
        try:
            for line in process.stdout:
                said.append(line)
                if line.startswith(begins):
                    return line
            raise AssertionError("".join(said))
        finally:
            alarm.cancel()
            os.killpg(process.pid, 9)


TAILS = [
    line.strip() for line in re.findall(r"^    (menagerie events tail.*)$", GUIDE, re.MULTILINE)
]


@pytest.mark.parametrize("place", range(3))
def test_the_command_line_follows(served: Served, tenant: Tenant, folder: Path, place: int) -> None:
    assert len(TAILS) == 3
    if "jq" in TAILS[place] and shutil.which("jq") is None:
        pytest.skip("jq is not installed")
    instance_id = served.house.instance(tenant, running=False, name="sales")
    program = shlex.join([sys.executable, "-m", "menagerie"])
    # Backups take too long here; jq keeps what it prints until it ends, unless it is told not to.
    line = TAILS[place].replace("backup.*,restore.*", "instance.*").replace("jq .", "jq -c .")
    surroundings = {
        "MENAGERIE_BASE_URL": served.base_url,
        "MENAGERIE_API_KEY": tenant.key,
        "MENAGERIE_ORG": tenant.org_id,
        "PYTHONPATH": str(ROOT),
    }
    text = f'menagerie() {{ {program} "$@"; }}\n{line.replace("jq -c", "jq --unbuffered -c")}'
    with happening(served, tenant, instance_id):
        found = first_line(["bash", "-c", text], folder, surroundings, "{" if "jq" in line else "")
    assert instance_id in found if "jq" in line else "instance.paused.v1" in found


def test_curl_is_sent_what_is_shown(served: Served, tenant: Tenant, folder: Path) -> None:
    if shutil.which("curl") is None:
        pytest.skip("curl is not installed")
    instance_id = served.house.instance(tenant, running=False)
    surroundings = {"API": served.base_url, "KEY": tenant.key, "ORG": tenant.org_id}
    shown = block("curl -N")
    command, _, answer = shown.partition("\n\n")
    # A stream ends soon here, and a client would connect again.
    again = f"while true; do {command}; done"
    with happening(served, tenant, instance_id):
        data = first_line(["bash", "-c", again], folder, surroundings, "data: ")
        first = first_line(["bash", "-c", again], folder, surroundings, "id: ")
    assert json.loads(data.removeprefix("data: "))["type"] == "instance.paused.v1"
    named = [line.partition(":")[0] for line in answer.splitlines()]
    assert named == ["retry", "id", "", "id", "data", "", ""]
    assert re.fullmatch(r"id: evt_0{10}[0-9]{16}\n", first)
    assert re.search(r"^id: evt_0{10}[0-9]{16}$", answer, re.MULTILINE)


def test_python_follows(served: Served, tenant: Tenant) -> None:
    instance_id = served.house.instance(tenant, running=False)
    text = block("from clients.client").replace("https://api.example.com", served.base_url)

    class EnoughError(Exception):
        pass

    found: list[dict[str, Any]] = []

    def take(data: str) -> None:
        found.append(json.loads(data))
        raise EnoughError

    with happening(served, tenant, instance_id), pytest.raises(EnoughError):
        exec(text, {"KEY": tenant.key, "ORG": tenant.org_id, "print": take})
    assert (found[0]["type"], found[0]["org_id"]) == ("instance.paused.v1", tenant.org_id)


@pytest.mark.nightly
def test_javascript_follows(served: Served, tenant: Tenant, tmp_path: Path) -> None:
    modules = node_modules()
    (tmp_path / "node_modules").symlink_to(modules)
    instance_id = served.house.instance(tenant, running=False)
    given = {"api": served.base_url, "org": tenant.org_id, "key": tenant.key}
    constants = "".join(f"const {name} = {json.dumps(value)};\n" for name, value in given.items())
    (tmp_path / "guide.mjs").write_text(constants + block("import { EventSource }"))
    with happening(served, tenant, instance_id):
        first_line(["node", "guide.mjs"], tmp_path, {}, "{")
