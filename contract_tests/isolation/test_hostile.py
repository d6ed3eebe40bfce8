"""Holds promises 44 and 45 for every engine, with its administrator's power: the sandbox holds."""

import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import orjson
import pytest

from cell.runtime.cgroups import ROOT
from contract_tests.cell.rig import SMALL, until
from contract_tests.isolation.attackers import ATTACKERS
from contract_tests.isolation.conftest import Attacked
from contract_tests.isolation.surroundings import (
    CANARY,
    PROBE,
    Groups,
    Surroundings,
    alive,
    listening,
)


def needs(around: Surroundings, *means: str) -> None:
    """Skips where the machine itself cannot hold an engine."""
    told = around.rig.get("/v1/cell").json()["confinement"]
    for name in means:
        if not told[name]["enforced"]:
            pytest.skip(f"{name} is not enforced: {told[name]['reason']}")


def test_an_administrator_finds_no_file_and_no_network(
    around: Surroundings, attacked: Attacked
) -> None:
    needs(around, "filesystem", "network", "uid")
    told = attacked.told
    assert len(told) > 10
    # The name of a file may be told back, what is in it not.
    assert [answer for answer in told if CANARY in str(answer)] == []
    around.check()


def test_code_in_an_engines_place_finds_nothing_either(
    around: Surroundings, attacked: Attacked
) -> None:
    """As after an overflow: whatever runs where the engine runs, as whom it runs."""
    needs(around, "filesystem", "network", "uid")
    enter = shutil.which("nsenter")
    if enter is None:
        pytest.skip("nsenter is not installed")
    site = around.rig.home / "instances" / attacked.instance_id
    pid = orjson.loads((site / "process.json").read_bytes())["pid"]
    uid = (site / "data").stat().st_uid
    drop = ["setpriv", f"--reuid={uid}", f"--regid={uid}", "--clear-groups", "--no-new-privs"]
    done = subprocess.run(
        [
            *(enter, "--target", str(pid), "--mount", "--net", "--pid", "--ipc", "--uts", "--"),
            *(*drop, "--bounding-set=-all", "--inh-caps=-all", "--"),
            *(sys.executable, "-I", "-S", "-c", PROBE, *around.words()),
        ],
        capture_output=True,
        text=True,
        check=True,
        cwd="/",
    )
    lines = done.stdout.splitlines()
    assert [line for line in lines if line.startswith("GOT")] == ["GOT own 1"]
    assert len(lines) > 10
    around.check()


def test_every_process_of_an_engine_is_held_by_its_size(
    around: Surroundings, attacked: Attacked
) -> None:
    needs(around, "cpu", "memory", "pids", "uid")
    instance_id = attacked.instance_id
    assert attacked.told
    uid = (around.rig.home / "instances" / instance_id / "data").stat().st_uid

    def one_group() -> set[Groups] | None:
        """A tool that the cell runs beside the engine for a moment is in another."""
        found = {group for _, group in alive(uid, instance_id)}
        return found if len(found) == 1 else None

    # One for all of them, in each tree.
    groups: set[Groups] = until(one_group, "all processes are in one group", 20)
    assert all(groups), "they are in none"
    size = {"memory": str(SMALL["memory_bytes"]), "pids": "512"}
    for controller, group in groups.pop():
        if controller:
            files = {
                "memory": "memory.limit_in_bytes",
                "pids": "pids.max",
                "cpu": "cpu.cfs_quota_us",
            }
            told = (ROOT / controller / group / files[controller]).read_text().strip()
            assert told == {**size, "cpu": "50000"}[controller]
        else:
            files = {"memory": "memory.max", "pids": "pids.max", "cpu": "cpu.max"}
            told_ = {
                name: (ROOT / group / file).read_text().strip() for name, file in files.items()
            }
            assert told_ == {**size, "cpu": "50000 100000"}


def test_the_probe_finds_all_of_it_where_nothing_holds_it(
    around: Surroundings, tmp_path: Path
) -> None:
    """Else the tests above would hold whatever happened."""
    visits: list[str] = []
    with listening(visits) as port:
        words = replace(around, port=port).words(str(tmp_path))
        words[1] = str(tmp_path / "canary")
        Path(words[1]).write_text(CANARY)
        done = subprocess.run(
            [sys.executable, "-c", PROBE, *words], capture_output=True, text=True, check=True
        )
        until(lambda: visits, "the listener was visited")
    got = {line.split()[1] for line in done.stdout.splitlines() if line.startswith("GOT")}
    assert got >= {"own", "canary", "planted", "home", "cell's", "neighbour's", "loopback", "kill"}


def test_each_engine_of_a_cell_is_attacked(versions: dict[str, str]) -> None:
    assert set(versions) <= set(ATTACKERS)
