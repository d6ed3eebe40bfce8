"""What a cell tells of its machine: no more than the group it was started in may use."""

from pathlib import Path

import psutil
import pytest

from cell.runtime.machine import capacity, free_memory_bytes
from control.policy.sizes import GIB


def written(root: Path, files: dict[str, str]) -> None:
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"{text}\n")


def test_the_whole_machine_where_nothing_bounds_it(tmp_path: Path) -> None:
    (tmp_path / "self").write_text("0::/\n")
    told = capacity(tmp_path, tmp_path, tmp_path / "self")
    assert told["vcpu"] == len(psutil.Process().cpu_affinity() or [])
    assert told["memory_bytes"] == psutil.virtual_memory().total
    assert told["storage_bytes"] == pytest.approx(psutil.disk_usage(str(tmp_path)).total, rel=0.1)
    assert capacity(tmp_path, tmp_path, tmp_path / "missing") == told


@pytest.mark.parametrize(
    ("groups", "files"),
    [
        (
            "0::/user/service/agent",
            {
                "user/service/agent/memory.max": "max",
                "user/service/cpu.max": "50000 100000",
                "user/service/memory.max": str(GIB),
                "user/memory.max": str(2 * GIB),
                "cpu.max": "max 100000",
            },
        ),
        (
            "7:cpu,cpuacct:/a/b\n6:memory:/c\n1:name=systemd:/z",
            {
                "cpu/a/b/cpu.cfs_quota_us": "-1",
                "cpu/a/b/cpu.cfs_period_us": "100000",
                "cpu/a/cpu.cfs_quota_us": "25000",
                "cpu/a/cpu.cfs_period_us": "50000",
                "memory/c/memory.limit_in_bytes": str(GIB),
                "memory/memory.limit_in_bytes": "9223372036854771712",
            },
        ),
        # A container sees its own group at the root, and is told the host's path of it.
        ("0::/../../host/path", {"cpu.max": "50000 100000", "memory.max": str(GIB)}),
        ("0::/host/path", {"cpu.max": "50000 100000", "memory.max": str(GIB)}),
    ],
    ids=["version 2", "version 1", "in a container", "in another's container"],
)
def test_limits_of_groups_are_respected(tmp_path: Path, groups: str, files: dict[str, str]) -> None:
    written(tmp_path, files)
    (tmp_path / "self").write_text(f"{groups}\n")
    told = capacity(tmp_path, tmp_path, tmp_path / "self")
    assert (told["vcpu"], told["memory_bytes"]) == (0.5, GIB)


@pytest.mark.parametrize(
    ("groups", "files"),
    [
        (
            "0::/service",
            {
                "service/memory.max": str(GIB),
                "service/memory.current": str(GIB // 2),
                "service/memory.stat": f"anon 5\ninactive_file {GIB // 4}",
                "memory.max": "max",
                "memory.current": "1",
            },
        ),
        (
            "6:memory:/c",
            {
                "memory/c/memory.limit_in_bytes": str(GIB),
                "memory/c/memory.usage_in_bytes": str(GIB // 2),
                "memory/c/memory.stat": f"inactive_file 1\ntotal_inactive_file {GIB // 4}",
            },
        ),
    ],
    ids=["version 2", "version 1"],
)
def test_what_is_free_is_what_the_groups_have_left(
    tmp_path: Path, groups: str, files: dict[str, str]
) -> None:
    written(tmp_path, files)
    (tmp_path / "self").write_text(f"{groups}\n")
    assert free_memory_bytes(tmp_path, tmp_path / "self") == GIB * 3 // 4
