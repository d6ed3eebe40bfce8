"""Memory that an engine has beyond its size until it has started, and no longer."""

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from cell.runtime.cgroups import GroupsV2
from cell.runtime.headroom import EXTRA_MAX_BYTES, LEFT_FREE_BYTES, Headroom
from contract_tests.cell.rig import GIB, SMALL, Rig, new_id, running, spec

MIB = 2**20
LITTLE = {**SMALL, "name": "little", "memory_bytes": 256 * MIB}
# Takes so much memory, as who recovers does, and gives it back before it becomes the server.
HUNGRY = """#!/bin/sh
case "$1" in
--version) exec {real} "$@" ;;
esac
head -c {taken} /dev/zero | tail -c {taken} >/dev/null || exit 1
exec {real} "$@"
"""


@pytest.fixture
def groups(tmp_path: Path) -> GroupsV2:
    """On plain files."""
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
    (tmp_path / "cgroup.controllers").write_text("cpu cpuset memory pids")
    return GroupsV2(tmp_path)


def limit(tmp_path: Path, name: str) -> int:
    return int((tmp_path / name / "memory.max").read_text())


def test_those_that_start_at_once_share_what_is_free(tmp_path: Path, groups: GroupsV2) -> None:
    free = LEFT_FREE_BYTES + GIB + 2 * EXTRA_MAX_BYTES
    headroom = Headroom(groups, lambda: free)
    headroom.give("a", GIB)
    assert limit(tmp_path, "a") == GIB + EXTRA_MAX_BYTES
    headroom.give("b", GIB)
    assert limit(tmp_path, "b") == GIB + EXTRA_MAX_BYTES // 2
    # The one that has started leaves it to others.
    assert headroom.take_back("a", GIB)
    assert limit(tmp_path, "a") == GIB
    headroom.give("b", GIB)
    assert limit(tmp_path, "b") == GIB + EXTRA_MAX_BYTES


def test_a_machine_that_has_none_gives_none(tmp_path: Path, groups: GroupsV2) -> None:
    groups.set_memory("a", GIB)
    Headroom(groups, lambda: GIB // 2).give("a", GIB)
    assert limit(tmp_path, "a") == GIB


def test_it_is_not_taken_from_an_engine_that_still_uses_it(
    tmp_path: Path, groups: GroupsV2
) -> None:
    headroom = Headroom(groups, lambda: 9 * GIB)
    headroom.give("a", GIB)
    (tmp_path / "a" / "memory.current").write_text(str(GIB + 1))
    assert not headroom.take_back("a", GIB)
    assert limit(tmp_path, "a") == GIB + EXTRA_MAX_BYTES
    (tmp_path / "a" / "memory.stat").write_text("inactive_file 1\n")
    assert headroom.take_back("a", GIB)
    assert limit(tmp_path, "a") == GIB


@contextlib.contextmanager
def hungry(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, taken: int) -> Iterator[Rig]:
    real = Path("/usr/bin/redis-server")
    if not real.exists():
        pytest.skip("no redis-server on this machine")
    folder = tmp_path / "bin"
    folder.mkdir()
    server = folder / "redis-server"
    server.write_text(HUNGRY.format(real=real, taken=taken))
    server.chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}:{os.environ['PATH']}")
    with running(tmp_path / "cell") as made:
        if not made.get("/v1/cell").json()["confinement"]["memory"]["enforced"]:
            pytest.skip("memory is not limited here")
        yield made


def order(rig: Rig) -> dict[str, Any]:
    cell = rig.get("/v1/cell").json()
    versions = {each["engine"]: each["versions"] for each in cell["engines"]}
    return {"engine": "redis", "engine_version": versions["redis"][0], "size": LITTLE}


@pytest.mark.nightly
def test_to_start_an_engine_may_use_more_than_its_size(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with hungry(tmp_path, monkeypatch, 400 * MIB) as rig:
        instance_id = rig.make(**order(rig))
        told = Path(f"/proc/{rig.engine_pid(instance_id)}/cgroup").read_text().splitlines()
        paths = dict(line.split(":", 2)[1:] for line in told)
        found = [
            *Path(f"/sys/fs/cgroup/memory{paths.get('memory')}").glob("memory.limit_in_bytes"),
            *Path(f"/sys/fs/cgroup{paths.get('')}").glob("memory.max"),
        ]
        assert [int(each.read_text()) for each in found] == [LITTLE["memory_bytes"]]


@pytest.mark.nightly
def test_where_that_is_not_enough_its_owner_is_told_what_helps(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with hungry(tmp_path, monkeypatch, EXTRA_MAX_BYTES + 512 * MIB) as rig:
        instance_id = new_id()
        wanted = spec(instance_id, **order(rig))
        answer = rig.act("PUT", f"/v1/instances/{instance_id}", wanted)
        assert answer.status_code == 503
        assert "choose a larger size" in rig.observe(instance_id)["status_reason"]
