"""The host as engines meet it: starts their processes with all the confinement there is."""

import asyncio
import contextlib
import hmac
import os
import signal
import subprocess
import sys
import threading
import time
import zlib
from collections.abc import Callable, Iterator, Sequence
from functools import cached_property, partial
from pathlib import Path
from typing import Any

import structlog
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from cell.layout import ClosedError, Layout, Site
from cell.runtime import cgroups, tools
from cell.runtime.attendants import Attendants
from cell.runtime.cgroups import TOOLS
from cell.runtime.confinement import (
    NOBODY,
    ConfinedCommand,
    Confinement,
    Means,
    Mount,
    Sandbox,
    warn,
)
from cell.runtime.cpus import Cpus
from cell.runtime.engine_folders import INSIDE, EngineFolders, folders_of
from cell.runtime.headroom import Headroom
from cell.runtime.own_threads import in_own_thread
from cell.runtime.process import (
    MARK,
    NOBODYS,
    LaunchError,
    Process,
    ResourceUsage,
    find,
    is_there,
    launch,
    mark_of,
    pids,
    strays,
    uid_of,
)
from cell.runtime.reach import Python, SharedPrograms, passable
from cell.specification import Size

log = structlog.get_logger("cell.host")

END_FOR_S = 10.0  # The kernel may need a while for the memory of a large one.
PIDS_MAX = 512
# Engines that have a process or a thread for each connection need some besides, also for work
# that belongs to none: MariaDB's events, PostgreSQL's workers.
PIDS_SPARE = 256
OPEN_FILES_MAX = 20_000
# Of an engine's own uid, where no group bounds them: a size may change while an engine runs, and
# this limit could not follow.
PROCESSES_MAX = 8192
SECRET_BYTES = 32


class Host:
    """One for a cell. `mark` names the cell in the environment of every process it started."""

    def __init__(
        self,
        mark: str,
        cell_name: str,
        packages: tuple[str, ...],
        *,
        confine: bool = True,
        uids: range = range(NOBODY, NOBODY),
        key: bytes = b"",
    ) -> None:
        """`uids` are this cell's alone, for its engines to run as.

        From `key`, which no database holds, the secrets are derived that `secret` gives.
        """
        # A digest, as tenants may read it: the mark of a cell is the path of its home.
        self._mark = mark_of(mark)
        # Engines that an earlier version started are marked with the path itself.
        self._marks = (self._mark, mark)
        self._key = key
        self._uids = uids
        self._sandbox = Sandbox(confine=confine, packages=packages, uid=uids.start)
        self.attendants = Attendants(self._sandbox, self._environment)
        self._home = Path(mark)
        self._groups = cgroups.find(cell_name, confine=confine)
        self.headroom = Headroom(self._groups)
        cpus = sorted(os.sched_getaffinity(0))
        # Cells of one machine do not all begin with the same CPU.
        first = zlib.crc32(cell_name.encode()) % len(cpus)
        self._cpus = Cpus(cpus[first:] + cpus[:first])
        self._placing = threading.Lock()
        self.confinement: Confinement = {**self._sandbox.means, **self._groups.means}
        warn(self.confinement)

    def view(self, site: Site) -> EngineFolders:
        if self._sandbox.hides_files:
            return EngineFolders(INSIDE / "data", INSIDE / "conf", INSIDE / "run")
        return EngineFolders(site.data.outside, site.configuration, site.run.outside)

    @property
    def home(self) -> Path:
        """The cell's folder, for what a driver keeps for all instances together."""
        return self._home

    def moves(self, layout: Layout) -> bool:
        """Whether engines' own uids find no way to their folders where these lie now."""
        must_pass = self.confinement["uid"].enforced and not self.hides_files
        return must_pass and not passable(layout.open)

    def settle(self, layout: Layout) -> Layout:
        """Answers the layout with its folders where engines can go; before any of them starts.

        Raises OSError where what is there cannot be moved.
        """
        if self.moves(layout) or layout.open != layout.home:
            try:
                layout = layout.opened()
            except ClosedError as error:
                self.confinement["uid"] = Means(enforced=False, reason=str(error))
        self._home = layout.open
        return layout

    @property
    def hides_files(self) -> bool:
        """Whether what is not mounted cannot be seen; see `Mount`."""
        return self._sandbox.hides_files

    @property
    def runs_as_root(self) -> bool:
        """Whether engines run as root, for want of anything else: some refuse to."""
        return os.geteuid() == 0 and not self.confinement["uid"].enforced

    def program(self, path: Path) -> Path:
        """Where engines find a program that needs nothing of the folder it lies in."""
        if self.hides_files or not self.confinement["uid"].enforced or passable(path):
            return path
        return self._shelf.program(path)

    async def python(self) -> Python:
        """How an engine that is a service of ours is run."""
        if self._sandbox.reads_all:
            return Python(sys.executable, {"PYTHONPATH": ":".join(self._sandbox.import_paths)})
        return await asyncio.to_thread(self._shelf.python)

    @cached_property
    def _shelf(self) -> SharedPrograms:
        return SharedPrograms(self._home / "programs", self._sandbox.packages)

    def secret(self, site: Site, purpose: str) -> str:
        """The same 256 bits each time, as text; what a driver logs in with as an administrator."""
        derivation = HKDF(hashes.SHA256(), SECRET_BYTES, salt=None, info=b"driver secrets v1")
        context = f"{site.instance_id}:{purpose}".encode()
        return hmac.digest(derivation.derive(self._key), context, "sha256").hex()

    async def run(
        self,
        site: Site,
        argv: list[str],
        environment: dict[str, str] | None = None,
        *,
        mounts: Sequence[Mount] = (),
        content: bytes = b"",
        timeout_s: float = 60.0,
        going_on: Callable[[], None] | None = None,
    ) -> bytes:
        """Runs a tool to its end, confined to the site; `content` is its input.

        Answers what it wrote. Raises LaunchError with the end of what it complained of. What
        `going_on` raises ends the tool.
        """
        command = tools.ToolCommand(argv, environment or {}, mounts)
        return await in_own_thread(self._run, site, command, content, timeout_s, going_on)

    @contextlib.contextmanager
    def confined(
        self, site: Site, size: Size, argv: list[str], said: dict[str, str], mounts: list[Mount]
    ) -> Iterator[ConfinedCommand]:
        """A tool that sees `mounts` and no folder of the site's, in a group of the size beside."""
        self._refuse_root(site)
        groups = self._groups.make(site.instance_id + TOOLS, size.memory_bytes, PIDS_MAX)
        self._groups.set_cpu(site.instance_id + TOOLS, size.vcpu)
        with self._sandbox.filter() as filter_fd, Path(os.devnull).open("wb") as nowhere:
            kept = [nowhere.fileno(), *([filter_fd] if filter_fd >= 0 else [])]
            words = self._sandbox.command(site.uid, mounts, argv, kept[0], filter_fd)
            yield ConfinedCommand(words, self._environment(site, said), kept, groups)

    async def start(
        self,
        site: Site,
        argv: list[str],
        environment: dict[str, str],
        size: Size,
        *,
        mounts: Sequence[Mount] = (),
    ) -> Process:
        """Runs `argv` confined to the site; the CPU is not limited until `limit_cpu`.

        `mounts` are what it sees beside its folders, where files are hidden at all.
        """
        work = asyncio.to_thread(self._start, site, argv, environment, size, mounts)
        starting = asyncio.ensure_future(work)
        try:
            process = await asyncio.shield(starting)
        except asyncio.CancelledError:
            # The thread goes on; what it starts would belong to nobody.
            with contextlib.suppress(OSError):
                (await starting).signal(signal.SIGKILL)
            raise
        process.companions = partial(self._of_instance, site)
        process.save(site.process)
        log.info(
            "cell.engine_started",
            instance_id=site.instance_id,
            pid=process.pid,
            confinement={name: means.enforced for name, means in self.confinement.items()},
        )
        return process

    def groups_of_console(self) -> list[Path]:
        return cgroups.for_console(self._groups)

    def limit_cpu(self, process: Process, vcpu: float | None) -> None:
        self._groups.set_cpu(process.group, vcpu)
        self._place(process.group, vcpu)

    def resize(self, process: Process, size: Size) -> None:
        """Gives an engine that runs the CPU, memory and processes of another size."""
        self._groups.make(process.group, size.memory_bytes, _pids_max(size))
        self.limit_cpu(process, size.vcpu)

    def usage(self, process: Process) -> ResourceUsage:
        memory_bytes = self._groups.memory_bytes(process.group)
        cpu_s = self._groups.cpu_s(process.group)
        return ResourceUsage(
            process.memory_bytes if memory_bytes is None else memory_bytes,
            process.cpu_s if cpu_s is None else cpu_s,
        )

    def memory_kills(self, site: Site) -> int:
        """How often the kernel ended a process of the instance for want of memory."""
        return self._groups.memory_kills(site.instance_id)

    def forget(self, site: Site) -> None:
        """Ends and removes what stays of an engine that has ended."""
        until = time.monotonic() + END_FOR_S
        while left := self._of_instance(site):
            if time.monotonic() > until:
                log.warning("cell.processes_left", instance_id=site.instance_id, pids=left[:10])
                break
            for pid in left:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            time.sleep(0.005)
        site.process.unlink(missing_ok=True)
        self._groups.remove(site.instance_id)
        self.headroom.forget(site.instance_id)
        self._place(site.instance_id, None)

    def _of_instance(self, site: Site) -> list[int]:
        """By their group or their user, whatever they have made of themselves."""
        if any(means.enforced for means in self._groups.means.values()):
            found = self._groups.pids(site.instance_id)
        else:
            uids = self._own_uids(site)
            found = [pid for pid in pids() if uid_of(pid) in uids] if uids else []
        return [pid for pid in found if is_there(pid)]

    def find(self, site: Site) -> Process | None:
        """The engine an earlier cell left running."""
        for mark in self._marks:
            words = f"{mark}/{site.instance_id}"
            if process := find(site.process, words, self._own_uids(site)):
                process.companions = partial(self._of_instance, site)
                return process
        return None

    def strays(self, site: Site | None = None) -> list[int]:
        """Processes this cell ever started (for one site), adopted or lost."""
        if site is None:
            enforced = self.confinement["uid"].enforced
            marks, uids = [f"{mark}/" for mark in self._marks], self._uids if enforced else NOBODYS
        else:
            marks = [f"{mark}/{site.instance_id}\0" for mark in self._marks]
            uids = self._own_uids(site)
        grouped = self._groups.pids("inst_*" if site is None else site.instance_id)
        return sorted({*grouped, *(pid for mark in marks for pid in strays(mark, uids))})

    def _own_uids(self, site: Site) -> range:
        owner = self.owner(site)
        return NOBODYS if owner is None else range(owner, owner + 1)

    def owner(self, site: Site) -> int | None:
        """Whom the site's engine runs as; None where that is the cell's own user."""
        return site.uid if self.confinement["uid"].enforced else None

    def close(self) -> None:
        """Leaves nothing behind on the machine, once no engine runs."""
        self._groups.close()

    def _place(self, name: str, vcpu: float | None) -> None:
        """Gives an instance its CPUs, and those their others who are moved by that."""
        with self._placing:
            for moved, place in self._cpus.place(name, vcpu).items():
                self._groups.set_cpus(moved, place)

    def _run(
        self,
        site: Site,
        command: tools.ToolCommand,
        content: bytes,
        timeout_s: float,
        going_on: Callable[[], None] | None,
    ) -> bytes:
        nowhere = os.open(os.devnull, os.O_WRONLY)
        try:
            with self.tool(site, command, nowhere) as (words, given):
                return tools.run(words, content, timeout_s, going_on, **given)
        except (subprocess.TimeoutExpired, tools.ToolError) as error:
            raise LaunchError(f"{command.name} {tools.why(error)}") from error
        finally:
            os.close(nowhere)

    @contextlib.contextmanager
    def tool(
        self, site: Site, command: tools.ToolCommand, info_fd: int
    ) -> Iterator[tuple[list[str], dict[str, Any]]]:
        """The words of a tool that is confined to the site, and what to start them with."""
        self._refuse_root(site)
        folders = folders_of(site, command.mounts)
        with self._sandbox.filter() as filter_fd:
            yield (
                self._sandbox.command(site.uid, folders, command.argv, info_fd, filter_fd),
                {
                    "env": self._environment(site, command.environment),
                    "cwd": site.directory,
                    "pass_fds": [each for each in (info_fd, filter_fd) if each >= 0],
                    "start_new_session": True,
                },
            )

    def _refuse_root(self, site: Site) -> None:
        """The catalogue offers nothing then; this holds for whatever was there before."""
        if os.geteuid() == 0 and (self.runs_as_root or site.uid == 0):
            raise LaunchError("engines must not run as root")

    def _environment(self, site: Site, environment: dict[str, str]) -> dict[str, str]:
        return {
            "PATH": "/usr/bin:/bin",
            "LANG": "C.UTF-8",
            "HOME": "/nonexistent",
            **environment,
            MARK: f"{self._mark}/{site.instance_id}",
        }

    def _start(
        self,
        site: Site,
        argv: list[str],
        environment: dict[str, str],
        size: Size,
        mounts: Sequence[Mount],
    ) -> Process:
        self._refuse_root(site)
        groups = self._groups.make(site.instance_id, size.memory_bytes, _pids_max(size))
        # The group may be of an engine that a killed cell left, and that has ended since.
        self._groups.set_cpu(site.instance_id, None)
        self._place(site.instance_id, None)
        info = os.pipe() if self._sandbox.hides_files else None
        info_fd = info[1] if info else -1
        with self._sandbox.filter() as filter_fd:
            return launch(
                self._sandbox.command(site.uid, folders_of(site, mounts), argv, info_fd, filter_fd),
                environment=self._environment(site, environment),
                groups=groups,
                log=site.log,
                info=info,
                kept=[each for each in (info_fd, filter_fd) if each >= 0],
                open_files_max=OPEN_FILES_MAX,
                processes_max=None if self.owner(site) is None else PROCESSES_MAX,
                directory=site.directory,
                group=site.instance_id,
            )


def _pids_max(size: Size) -> int:
    return max(PIDS_MAX, size.connections_max + PIDS_SPARE)
