"""A process of an engine: started apart from the cell, watched by its pid, and found again."""

import asyncio
import contextlib
import hashlib
import os
import signal
import subprocess
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import orjson

from cell.runtime.stop_signals import StopSignals, go_on

MARK = "MENAGERIE_ENGINE"
INFO_TIMEOUT_S = 10.0
HALT_WITHIN_S = 0.2
ASK_AGAIN_S = 0.5
NOBODYS = range(0)
SAVED = ("pid", "start_ticks", "started_at", "group")
# A clock is named after a process by its pid and this kind; /proc tells hundredths of a second.
_CPU_CLOCK = 2
_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")
# Everything in one shell, before the engine: leave no core, never run before others in real time,
# open so many files and be so many processes at most (where the cell itself may have fewer, as
# many as it may; shells do not agree on the letter), enter the groups, then become the engine.
_ENTER = (
    'ulimit -c 0; ulimit -r 0 2>/dev/null || :; ulimit -n "$1" 2>/dev/null || :; '
    '[ "$2" = - ] || ulimit -u "$2" 2>/dev/null || ulimit -p "$2" 2>/dev/null || :; shift 2; '
    'while [ "$1" != -- ]; do echo $$ > "$1"; shift; done; shift; exec "$@"'
)


def mark_of(home: str) -> str:
    """By which the engines of a cell are known."""
    return hashlib.sha256(home.encode()).hexdigest()[:32]


class LaunchError(OSError):
    """The process did not come to be, or did not do what it was started for."""


@dataclass(frozen=True)
class ResourceUsage:
    """What an engine uses now, and the CPU time that it has used."""

    memory_bytes: int
    cpu_s: float


@dataclass
class Process:
    """A pid and the moment it began, which together name one process for good.

    `group` is the control group's name; `child` what this cell started, none once adopted.
    `companions` answers the pids of all that is of the same instance, as far as its host knows.
    """

    pid: int
    start_ticks: int
    started_at: float
    group: str
    child: subprocess.Popen[bytes] | None = field(default=None, repr=False, compare=False)
    companions: Callable[[], list[int]] = field(default=list, repr=False, compare=False)
    _signals: StopSignals = field(
        default_factory=StopSignals, init=False, repr=False, compare=False
    )

    @property
    def alive(self) -> bool:
        return _start_ticks(self.pid) == self.start_ticks

    async def ended(self) -> None:
        """Returns when the process is no more, child of ours or not; how it ended is known then."""
        await self._gone()
        if self.child is not None:
            await asyncio.to_thread(self.child.wait)

    async def _gone(self) -> None:
        try:
            watch = os.pidfd_open(self.pid)
        except ProcessLookupError:
            return
        try:
            if not self.alive:
                return
            loop = asyncio.get_running_loop()
            gone = asyncio.Event()
            loop.add_reader(watch, gone.set)
            try:
                await gone.wait()
            finally:
                loop.remove_reader(watch)
        finally:
            os.close(watch)

    async def ends_by(self, number: signal.Signals, within_s: float) -> bool:
        """Whether it does as it is asked.

        It is asked again meanwhile: an engine is the first process of its namespace, and what
        comes before it has set a handler is lost.
        """
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(within_s):
                while True:
                    self.signal(number)
                    with contextlib.suppress(TimeoutError):
                        async with asyncio.timeout(ASK_AGAIN_S):
                            await self.ended()
                            return True
        return False

    def signal(self, number: signal.Signals) -> None:
        if self.alive:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pid, number)

    def held_still(self) -> contextlib.AbstractContextManager[bool]:
        """Nothing of the engine runs meanwhile; False where it could not all be stopped."""
        return self._signals.held(self.members)

    @property
    def is_held_still(self) -> bool:
        return self._signals.are_held

    def resume(self) -> None:
        """Lets an engine go on that was held still when its cell died."""
        go_on(self.members())

    async def stop(self, timeout_s: float) -> None:
        """Asks it to end, and ends it where it does not."""
        if not await self.ends_by(signal.SIGTERM, timeout_s):
            await self.kill()

    async def kill(self) -> None:
        self.signal(signal.SIGKILL)
        await self.ended()

    @property
    def exit_reason(self) -> str:
        """How it ended, as far as that can be known: a process that was adopted leaves no word."""
        code = None if self.child is None else self.child.poll()
        if code is None:
            return "it ended"
        if code < 0 or code > 128:  # noqa: PLR2004 - a shell's way to say "by signal"
            number = -code if code < 0 else code - 128
            with contextlib.suppress(ValueError):
                return f"it was killed by {signal.Signals(number).name}"
        return f"it exited with status {code}"

    @property
    def cpu_s(self) -> float:
        with contextlib.suppress(OSError):
            return time.clock_gettime(~self.pid << 3 | _CPU_CLOCK)
        return 0.0

    @property
    def memory_bytes(self) -> int:
        fields = _stat_fields(self.pid)
        return int(fields[21]) * _PAGE_BYTES if fields else 0

    @property
    def threads(self) -> int:
        fields = _stat_fields(self.pid)
        return int(fields[17]) if fields else 0

    def tree(self) -> list[int]:
        """Its pid and those of all its descendants, as PostgreSQL has one for each session."""
        return tree_of(self.pid)

    def members(self) -> list[int]:
        """The tree, and its companions."""
        return sorted({*self.tree(), *self.companions()}) if self.alive else []

    def save(self, path: Path) -> None:
        """For the next cell; see `find`."""
        content = {name: getattr(self, name) for name in SAVED}
        temporary = path.with_suffix(".part")
        temporary.write_bytes(orjson.dumps(content))
        temporary.replace(path)


def find(path: Path, mark: str, uids: range = NOBODYS) -> Process | None:
    """The process an earlier cell left, where it still runs."""
    try:
        process = Process(**orjson.loads(path.read_bytes()))
    except (OSError, ValueError, TypeError):
        return None
    # Pid and ticks could fit by chance after the machine was started anew; the mark could not.
    return process if process.alive and _is_marked(process.pid, f"{mark}\0", uids) else None


def launch(
    command: list[str],
    *,
    environment: dict[str, str],
    groups: list[Path],
    log: Path,
    info: tuple[int, int] | None,
    kept: list[int],
    open_files_max: int,
    processes_max: int | None,
    directory: Path,
    group: str,
) -> Process:
    """Starts `command` in its own session; `info` is the pipe on which bubblewrap tells the pid.

    `kept` are the descriptors that the command is told of. Processes are counted by user.
    """
    limits = [str(open_files_max), str(processes_max or "-")]
    before = [*limits, *map(str, groups), "--"]
    words = ["/bin/sh", "-c", _ENTER, "sh", *before, *command]
    with log.open("ab") as output:
        child = subprocess.Popen(  # noqa: S603 - our own words
            words,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            env=environment,
            cwd=directory,
            pass_fds=kept,
            start_new_session=True,
        )
    pid = child.pid if info is None else _engine_pid(child, info)
    ticks = _start_ticks(pid)
    if ticks is None:
        child.wait()
        raise LaunchError(f"the engine exited at once, with status {child.returncode}")
    return Process(pid, ticks, time.time(), group, child)


def _engine_pid(child: subprocess.Popen[bytes], info: tuple[int, int]) -> int:
    reading, writing = info
    os.close(writing)
    told = b""
    with os.fdopen(reading, "rb", buffering=0) as pipe:
        while chunk := pipe.read(4096):
            told += chunk
            with contextlib.suppress(ValueError):
                return int(orjson.loads(told)["child-pid"])
    raise LaunchError(f"the sandbox could not be created (status {child.wait(INFO_TIMEOUT_S)})")


def strays(mark: str, uids: range = NOBODYS) -> list[int]:
    """Processes started for a cell (by its mark) or an instance of it, wherever they are now.

    `uids` are those that no process but theirs has.
    """
    return [pid for pid in pids() if _is_marked(pid, mark, uids)]


def pids() -> list[int]:
    """Of all processes that there are now."""
    return [int(entry.name) for entry in Path("/proc").iterdir() if entry.name.isdigit()]


def _is_marked(pid: int, mark: str, uids: range) -> bool:
    try:
        return f"{MARK}={mark}".encode() in Path(f"/proc/{pid}/environ").read_bytes()
    except PermissionError:
        # In a container even root may not look at another user's processes; whose they are it sees.
        return uid_of(pid) in uids
    except OSError:
        return False


def tree_of(pid: int) -> list[int]:
    """Its pid and those of all its descendants."""
    found = [pid]
    for each in found:
        found.extend(_children(each))
    return found


def kill_tree(pid: int) -> None:
    """With all its descendants. It may be making one: each is stopped before they are listed."""
    found = [pid]
    for each in found:
        _halt(each)
        found.extend(_children(each))
    # The innermost first: a sandbox that ends before what is in it leaves that behind.
    for each in reversed(found):
        with contextlib.suppress(ProcessLookupError):
            os.kill(each, signal.SIGKILL)
    # One that was not halted in time, as on a busy machine, may have left a child that waits for
    # its parent for ever.
    for each in _of_session(pid):
        with contextlib.suppress(ProcessLookupError):
            os.kill(each, signal.SIGKILL)


def _of_session(leader: int) -> list[int]:
    """Those that are left of the session that this process had begun, if it had."""
    return [pid for pid in pids() if (fields := _stat_fields(pid)) and fields[3] == str(leader)]


def _halt(pid: int) -> None:
    """Within moments, or not at all: one may wait for a disk."""
    until = time.monotonic() + HALT_WITHIN_S
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, signal.SIGSTOP)
    while (fields := _stat_fields(pid)) and fields[0] not in "Tt" and time.monotonic() < until:
        time.sleep(0.001)


def uid_of(pid: int) -> int | None:
    # Whoever runs gives itself a name, of any bytes.
    with contextlib.suppress(OSError, IndexError, ValueError):
        told = Path(f"/proc/{pid}/status").read_text(errors="replace")
        return int(told.partition("\nUid:")[2].split()[0])
    return None


def is_there(pid: int) -> bool:
    """Not one that has ended and that nobody has asked about yet."""
    return bool(_stat_fields(pid))


def _stat_fields(pid: int) -> list[str]:
    """The fields of /proc/<pid>/stat from the state on, or none for a process that is no more.

    One whose first thread has ended goes on with the others.
    """
    try:
        fields = Path(f"/proc/{pid}/stat").read_text(errors="replace").rpartition(")")[2].split()
    except OSError:
        return []
    return [] if fields[0] in "ZX" and int(fields[17]) <= 1 else fields


def _children(pid: int) -> list[int]:
    """Each thread has children of its own."""
    found: list[int] = []
    with contextlib.suppress(OSError):
        for thread in Path(f"/proc/{pid}/task").iterdir():
            with contextlib.suppress(OSError):
                listed = (thread / "children").read_text(errors="replace")
                found.extend(map(int, listed.split()))
    return found


def _start_ticks(pid: int) -> int | None:
    fields = _stat_fields(pid)
    return int(fields[19]) if fields else None
