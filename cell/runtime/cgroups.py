"""Control groups, version 1 and 2: what an engine gets of CPUs, memory and processes.

Groups are nested under the cell's own, so that limits set on the cell bound its engines too.
"""

import contextlib
import os
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Protocol

from cell.runtime.confinement import Confinement, Means
from cell.runtime.cpus import Place, weight

ROOT = Path("/sys/fs/cgroup")
SELF = Path("/proc/self/cgroup")
CONTROLLERS = ("cpu", "cpuset", "memory", "pids")
PERIOD_US = 100_000
# The kernel refuses quotas below a millisecond.
QUOTA_MIN_US = 1_000
# Where more is wanted than there is, sizes get it in proportion; and all engines together weigh
# as much as the machine has CPUs, not as little as one process beside them.
SHARES_PER_CPU = 1024
WEIGHT_PER_CPU = 100
WEIGHT_MAX = 10_000
REMOVE_FOR_S = 2.0
AGENT = "agent"
# Of all processes of the console together; most statements need some 20 MiB.
CONSOLE = "console"
TOOLS = "-tools"
OWN_TOOLS = ("", TOOLS)
CONSOLE_BYTES = 2**30
CONSOLE_PIDS = 256


class Groups(Protocol):
    """The groups of a cell. Names are of instances; figures for None are not limited."""

    means: Confinement

    def make(self, name: str, memory_bytes: int, pids_max: int) -> list[Path]:
        """Creates the group; answers the files a process writes its pid to, to enter it."""

    def set_memory(self, name: str, memory_bytes: int) -> bool:
        """False where more than that is in use, which changes nothing."""

    def set_cpu(self, name: str, vcpu: float | None) -> None: ...
    def set_cpus(self, name: str, place: Place) -> None: ...
    def cpu_s(self, name: str) -> float | None: ...
    def memory_bytes(self, name: str) -> int | None: ...
    def memory_kills(self, name: str) -> int: ...
    def remove(self, name: str) -> None: ...

    def pids(self, names: str) -> list[int]:
        """Of what is in groups of such names, as of `inst_*`; no process can leave its group."""

    def close(self) -> None:
        """Removes every group that has no process in it."""


def find(cell_name: str, root: Path = ROOT, own: Path = SELF, *, confine: bool = True) -> Groups:
    """The groups this machine lets us make; where it lets us make none, ones that do nothing."""
    if not confine:
        return NoGroups("switched off by the cell's settings")
    try:
        lines = [line.split(":", 2) for line in own.read_text().splitlines()]
    except OSError:
        return NoGroups("this system has no control groups")
    paths = {name: path for _, names, path in lines for name in names.split(",")}
    unified = next((path for number, names, path in lines if number == "0" and not names), None)
    if (root / "cgroup.controllers").exists() and unified is not None:
        return _unified(root / unified.strip("/"), cell_name)
    return GroupsV1(
        {name: root / name / paths[name].strip("/") for name in CONTROLLERS if name in paths},
        cell_name,
    )


class NoGroups:
    """Stands where control groups are not to be had."""

    def __init__(self, reason: str) -> None:
        self.means: Confinement = {
            name: Means(enforced=False, reason=reason) for name in CONTROLLERS
        }

    def make(self, name: str, memory_bytes: int, pids_max: int) -> list[Path]:  # noqa: ARG002 - nothing to do
        return []

    def set_memory(self, name: str, memory_bytes: int) -> bool:  # noqa: ARG002 - nothing to do
        return True

    def set_cpu(self, name: str, vcpu: float | None) -> None: ...

    def set_cpus(self, name: str, place: Place) -> None: ...

    def cpu_s(self, name: str) -> float | None:  # noqa: ARG002 - nothing to do
        return None

    def memory_bytes(self, name: str) -> int | None:  # noqa: ARG002 - nothing to do
        return None

    def memory_kills(self, name: str) -> int:  # noqa: ARG002 - nothing to do
        return 0

    def remove(self, name: str) -> None: ...

    def pids(self, names: str) -> list[int]:  # noqa: ARG002 - nobody is in any
        return []

    def close(self) -> None: ...


class GroupsV1:
    """One tree a controller; each that cannot be written is left out, and said to be."""

    def __init__(self, own: dict[str, Path], cell_name: str) -> None:
        self.means: Confinement = {}
        self._bases: dict[str, Path] = {}
        for controller in CONTROLLERS:
            reason = None
            base = own.get(controller)
            if base is None:
                reason = f"the {controller} controller is not mounted"
            else:
                base = base / f"cell-{cell_name}"
                try:
                    base.mkdir(exist_ok=True)
                    self._bases[controller] = base
                except OSError as error:
                    reason = f"{base} cannot be created: {error.strerror}"
            self.means[controller] = Means(reason is None, reason)
        self._set("cpu", ".", "cpu.shares", (os.cpu_count() or 1) * SHARES_PER_CPU)
        self._open_cpuset(".")
        base = self._bases.get("cpuset")
        if base and not all(_holds(base / f"cpuset.{each}") for each in ("mems", "cpus")):
            # Nobody could enter a group of no memory or no CPU.
            _remove([self._bases.pop("cpuset")])
            self.means["cpuset"] = Means(enforced=False, reason="the cell's own cpuset is empty")

    def make(self, name: str, memory_bytes: int, pids_max: int) -> list[Path]:
        for base in self._bases.values():
            (base / name).mkdir(exist_ok=True)
        self._open_cpuset(name)
        self._limit_memory(name, memory_bytes)
        self._set("pids", name, "pids.max", pids_max)
        return [base / name / "cgroup.procs" for base in self._bases.values()]

    def set_memory(self, name: str, memory_bytes: int) -> bool:
        if (self.memory_bytes(name) or 0) > memory_bytes:
            return False
        self._limit_memory(name, memory_bytes)
        base = self._bases.get("memory")
        limit = None if base is None else _number(base / name / "memory.limit_in_bytes")
        # The kernel refuses what it cannot bring the group to at once, and rounds to pages.
        return limit is None or limit <= memory_bytes

    def _limit_memory(self, name: str, memory_bytes: int) -> None:
        self._set("memory", name, "memory.limit_in_bytes", memory_bytes)
        # Memory and swap together; without swap accounting the file is not there.
        self._set("memory", name, "memory.memsw.limit_in_bytes", memory_bytes)
        # A limit that is raised meets the old one of both together, so once more.
        self._set("memory", name, "memory.limit_in_bytes", memory_bytes)

    def set_cpu(self, name: str, vcpu: float | None) -> None:
        self._set("cpu", name, "cpu.cfs_period_us", PERIOD_US)
        self._set("cpu", name, "cpu.cfs_quota_us", -1 if vcpu is None else _quota(vcpu))
        if vcpu is not None:
            self._set("cpu", name, "cpu.shares", max(2, weight(name, vcpu, SHARES_PER_CPU)))

    def set_cpus(self, name: str, place: Place) -> None:
        if place is None:
            self._open_cpuset(name)
        else:
            self._set("cpuset", name, "cpuset.cpus", _list(place))

    def _open_cpuset(self, name: str) -> None:
        """All that the group above has; a new group has nothing, and nobody could enter it."""
        base = self._bases.get("cpuset")
        if base is not None:
            with contextlib.suppress(OSError):
                group = base / name
                for file in ("cpuset.mems", "cpuset.cpus"):
                    (group / file).write_text((group.parent / file).read_text())

    def cpu_s(self, name: str) -> float | None:  # noqa: ARG002 - nothing to do
        # The kernel counts CPU in a tree of its own, which may not be ours: see Process.cpu_s.
        return None

    def memory_bytes(self, name: str) -> int | None:
        base = self._bases.get("memory")
        if base is None:
            return None
        used = _number(base / name / "memory.usage_in_bytes")
        # What the kernel can drop at once is not what the engine needs.
        return None if used is None else max(0, used - _stat(base / name, "total_inactive_file"))

    def memory_kills(self, name: str) -> int:
        base = self._bases.get("memory")
        return 0 if base is None else _stat(base / name, "oom_kill", "memory.oom_control")

    def remove(self, name: str) -> None:
        _remove(base / f"{name}{each}" for base in self._bases.values() for each in OWN_TOOLS)

    def pids(self, names: str) -> list[int]:
        return _pids(self._bases.values(), names)

    def close(self) -> None:
        for base in self._bases.values():
            _remove_all(base)

    def _set(self, controller: str, name: str, file: str, value: int | str) -> None:
        base = self._bases.get(controller)
        if base is not None:
            with contextlib.suppress(OSError):
                (base / name / file).write_text(str(value))


class GroupsV2:
    """One tree for all controllers, below a group that hands them on."""

    def __init__(self, base: Path) -> None:
        self._base = base
        given = (base / "cgroup.controllers").read_text().split()
        self.means: Confinement = {
            name: Means(name in given, None if name in given else f"{name} is not delegated")
            for name in CONTROLLERS
        }
        _hand_on(base, [name for name in CONTROLLERS if name in given])
        weight = min(WEIGHT_MAX, (os.cpu_count() or 1) * WEIGHT_PER_CPU)
        with contextlib.suppress(OSError):
            (base / "cpu.weight").write_text(str(weight))

    def make(self, name: str, memory_bytes: int, pids_max: int) -> list[Path]:
        group = self._base / name
        group.mkdir(exist_ok=True)
        for file, value in (
            ("memory.max", memory_bytes),
            ("memory.swap.max", 0),
            # An engine is of no use in part; of the console the largest process ends.
            ("memory.oom.group", int(name != CONSOLE)),
            ("pids.max", pids_max),
        ):
            with contextlib.suppress(OSError):
                (group / file).write_text(str(value))
        return [group / "cgroup.procs"]

    def set_memory(self, name: str, memory_bytes: int) -> bool:
        # Here the kernel would end the engine instead of refusing.
        if (self.memory_bytes(name) or 0) > memory_bytes:
            return False
        with contextlib.suppress(OSError):
            (self._base / name / "memory.max").write_text(str(memory_bytes))
        return True

    def set_cpu(self, name: str, vcpu: float | None) -> None:
        quota = "max" if vcpu is None else str(_quota(vcpu))
        with contextlib.suppress(OSError):
            (self._base / name / "cpu.max").write_text(f"{quota} {PERIOD_US}")
            if vcpu is not None:
                weighs = max(1, min(WEIGHT_MAX, weight(name, vcpu, WEIGHT_PER_CPU)))
                (self._base / name / "cpu.weight").write_text(str(weighs))

    def set_cpus(self, name: str, place: Place) -> None:
        with contextlib.suppress(OSError):
            # An empty list is all that the group above has.
            (self._base / name / "cpuset.cpus").write_text(_list(place or ()) + "\n")

    def cpu_s(self, name: str) -> float | None:
        used_us = _stat(self._base / name, "usage_usec", "cpu.stat")
        return used_us / 1e6 if used_us else None

    def memory_bytes(self, name: str) -> int | None:
        used = _number(self._base / name / "memory.current")
        return None if used is None else max(0, used - _stat(self._base / name, "inactive_file"))

    def memory_kills(self, name: str) -> int:
        return _stat(self._base / name, "oom_kill", "memory.events")

    def remove(self, name: str) -> None:
        _remove(self._base / f"{name}{each}" for each in OWN_TOOLS)

    def pids(self, names: str) -> list[int]:
        return _pids([self._base], names)

    def close(self) -> None:
        _remove_all(self._base)


def for_console(groups: Groups) -> list[Path]:
    """What each process of the console enters; nothing where no group would bound its memory."""
    if not groups.means["memory"].enforced:
        return []
    return groups.make(CONSOLE, CONSOLE_BYTES, CONSOLE_PIDS)


def _unified(own: Path, cell_name: str) -> Groups:
    """Only a group without processes of its own may hand controllers on, so the cell steps down."""
    if own.name == AGENT:
        own = own.parent
    try:
        given = set((own / "cgroup.controllers").read_text().split())
        handed_on = set((own / "cgroup.subtree_control").read_text().split())
        missing = given & set(CONTROLLERS) - handed_on
        if missing and "memory" not in handed_on:
            _step_down(own)
        # Where memory is handed on there are no processes, or it is the machine's root, which may
        # hand on beside those of others.
        _hand_on(own, sorted(missing))
        base = own / f"cell-{cell_name}"
        base.mkdir(exist_ok=True)
        return GroupsV2(base)
    except OSError as error:
        return NoGroups(f"the control group {own} cannot be divided: {error.strerror}")


def _step_down(own: Path) -> None:
    """Moves the cell, and those started with it, into a group beside the engines'."""
    inside = {int(pid) for pid in (own / "cgroup.procs").read_text().split()}
    ours = {pid for pid in inside if _session(pid) == os.getsid(0)}
    if inside - ours - {0}:
        raise PermissionError(1, "it contains processes of others")
    (own / AGENT).mkdir(exist_ok=True)
    for pid in ours:
        with contextlib.suppress(ProcessLookupError):
            (own / AGENT / "cgroup.procs").write_text(str(pid))


def _session(pid: int) -> int:
    try:
        return os.getsid(pid)
    except OSError:
        return -1


def _hand_on(group: Path, controllers: list[str]) -> None:
    for name in controllers:
        (group / "cgroup.subtree_control").write_text(f"+{name}")


def _quota(vcpu: float) -> int:
    return max(QUOTA_MIN_US, round(vcpu * PERIOD_US))


def _holds(path: Path) -> bool:
    with contextlib.suppress(OSError):
        return bool(path.read_text().strip())
    return False


def _list(cpus: Iterable[int]) -> str:
    return ",".join(map(str, sorted(cpus)))


def _number(path: Path) -> int | None:
    try:
        return int(path.read_text())
    except (OSError, ValueError):
        return None


def _stat(group: Path, name: str, file: str = "memory.stat") -> int:
    try:
        for line in (group / file).read_text().splitlines():
            key, _, value = line.partition(" ")
            if key == name:
                return int(value)
    except (OSError, ValueError):
        pass
    return 0


def _pids(bases: Iterable[Path], names: str) -> list[int]:
    found: set[int] = set()
    for group in (group for base in bases for group in base.glob(names)):
        with contextlib.suppress(OSError):
            found.update(map(int, (group / "cgroup.procs").read_text().split()))
    return sorted(found)


def _remove_all(base: Path) -> None:
    _remove([path for path in base.iterdir() if path.is_dir()])
    with contextlib.suppress(OSError):
        base.rmdir()


def _remove(groups: Iterable[Path]) -> None:
    for group in groups:
        deadline = time.monotonic() + REMOVE_FOR_S
        while group.exists():
            try:
                group.rmdir()
            except OSError:
                # The kernel counts a process that just ended for a moment longer.
                if time.monotonic() > deadline:
                    break
                time.sleep(0.01)
