"""What the machine has for instances: CPUs, memory and disk, as far as the cell may use them."""

import os
from pathlib import Path
from typing import Any, Final

ROOT: Final = Path("/sys/fs/cgroup")
SELF: Final = Path("/proc/self/cgroup")
MEMORY: Final = Path("/proc/meminfo")


def capacity(home: Path, root: Path = ROOT, own: Path = SELF) -> dict[str, Any]:
    """As the control plane is told it; bounded by the limits of the group the cell began in."""
    groups = _groups(root, own)
    disk = os.statvfs(home)
    return {
        "vcpu": min([float(len(os.sched_getaffinity(0))), *_each(groups, _quota)]),
        "memory_bytes": min([_memory_bytes("MemTotal"), *_each(groups, _limit_bytes)]),
        "storage_bytes": disk.f_blocks * disk.f_frsize,
    }


def free_memory_bytes(root: Path = ROOT, own: Path = SELF) -> int:
    """What the machine has left, and the groups that the cell is in."""
    left = [_memory_bytes("MemAvailable"), *_each(_groups(root, own), _left_bytes)]
    return max(0, int(min(left)))


def _each(groups: list[Path], figure: Any) -> list[Any]:
    return [found for found in map(figure, groups) if found is not None]


def _groups(root: Path, own: Path) -> list[Path]:
    """The folders of the cell's groups and of all above them, of either version."""
    try:
        lines = [line.split(":", 2) for line in own.read_text().splitlines()]
    except OSError:
        return []
    found = []
    for _, controllers, path in lines:
        for name in {"cpu", "memory", ""}.intersection(controllers.split(",")):
            base = root / name
            group = base / path.strip("/")
            # In a container the path may be the host's, which is not to be seen there; what lies
            # above it is.
            found += [each for each in (group, *group.parents) if each.is_relative_to(base)]
    return found


def _memory_bytes(name: str) -> int:
    for line in MEMORY.read_text().splitlines():
        if line.startswith(f"{name}:"):
            return int(line.split()[1]) * 1024
    raise OSError(f"/proc/meminfo has no {name}")


def _limit_bytes(group: Path) -> int | None:
    told = _read(group / "memory.max") or _read(group / "memory.limit_in_bytes")
    return int(told[0]) if told and told[0].isdecimal() else None


def _left_bytes(group: Path) -> int | None:
    limit = _limit_bytes(group)
    told = _read(group / "memory.current") or _read(group / "memory.usage_in_bytes")
    if limit is None or told is None:
        return None
    stat = _read(group / "memory.stat") or []
    figures = dict(zip(stat[::2], map(int, stat[1::2]), strict=True))
    # What the kernel can drop at once counts as free.
    dropped = figures.get("total_inactive_file", figures.get("inactive_file", 0))
    return limit - int(told[0]) + dropped


def _quota(group: Path) -> float | None:
    told = _read(group / "cpu.max")
    if told is None:
        one, per = _read(group / "cpu.cfs_quota_us"), _read(group / "cpu.cfs_period_us")
        told = [*one, *per] if one and per else None
    if told is None or not told[0].isdecimal():
        return None
    return int(told[0]) / int(told[1])


def _read(path: Path) -> list[str] | None:
    try:
        return path.read_text().split() or None
    except OSError:
        return None
