"""What the kernel of this machine can hold an engine by, found out without asking the product."""

import functools
import os
import platform
import secrets
import shutil
import subprocess
from pathlib import Path
from typing import Final

# What docs/confinement.md promises where the machine can do it.
MEANS: Final = ("filesystem", "network", "syscalls", "uid", "cpu", "cpuset", "memory", "pids")
_GROUPS: Final = Path("/sys/fs/cgroup")
_TRIED: Final = {
    "filesystem": ("unshare", "--mount", "--pid", "--fork", "true"),
    "network": ("unshare", "--net", "true"),
    "uid": ("setpriv", "--reuid=299199", "--clear-groups", "true"),
}
_LIMITS: Final = {
    "cpu": ("cpu.max", "cpu.cfs_quota_us"),
    "memory": ("memory.max", "memory.limit_in_bytes"),
    "pids": ("pids.max", "pids.max"),
    "cpuset": ("cpuset.cpus", "cpuset.cpus"),
}


@functools.cache
def can_hold(means: str) -> bool:
    """Raises KeyError for what is none of MEANS."""
    if means in _LIMITS:
        return _can_limit(means)
    return _has_filters() if means == "syscalls" else _runs(*_TRIED[means])


def _runs(*words: str) -> bool:
    """With the rights of this process, and without a user namespace of its own."""
    if shutil.which(words[0]) is None:
        return False
    return subprocess.run(words, capture_output=True, check=False).returncode == 0


def _has_filters() -> bool:
    known = platform.machine() in {"x86_64", "aarch64"}
    return known and Path("/proc/sys/kernel/seccomp/actions_avail").exists()


def _can_limit(controller: str) -> bool:
    """Whether a group made below our own has the controller's files."""
    lines = [line.split(":", 2) for line in Path("/proc/self/cgroup").read_text().splitlines()]
    unified = (_GROUPS / "cgroup.controllers").exists()
    for _, names, path in lines:
        if controller in names.split(",") or (unified and not names):
            root = _GROUPS if unified else _GROUPS / controller
            return _has_file(root / path.strip("/"), _LIMITS[controller][0 if unified else 1])
    return False


def _has_file(group: Path, name: str) -> bool:
    made = group / f"kernel-{os.getpid()}-{secrets.token_hex(4)}"
    try:
        made.mkdir()
    except OSError:
        return False
    try:
        return (made / name).exists()
    finally:
        made.rmdir()
