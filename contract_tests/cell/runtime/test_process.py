"""A process is known by its pid, whatever it makes of its threads; and all of a group ends."""

import asyncio
import contextlib
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from cell.runtime import process as processes
from cell.runtime.process import Process
from contract_tests.cell.rig import VALKEY, Rig, until

# Its first thread ends, and another goes on.
OUTLIVES = """
import ctypes, os, threading, time
threading.Thread(target=time.sleep, args=(600,)).start()
print("there", flush=True)
ctypes.CDLL(None).syscall(60 if os.uname().machine == "x86_64" else 93, 0)
"""


# As an engine, which is the first process of its namespace: what comes too early is lost.
STARTS_SLOWLY = """
import signal, sys, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
print("there", flush=True)
time.sleep(0.3)
signal.signal(signal.SIGTERM, lambda *_: sys.exit(7))
time.sleep(600)
"""


def state(pid: int) -> str:
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]


@contextlib.contextmanager
def started(script: str) -> Iterator[tuple[Process, "subprocess.Popen[bytes]"]]:
    """Once it has said that it is there."""
    with subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE) as child:
        try:
            assert child.stdout is not None
            assert child.stdout.readline()
            ticks = processes._start_ticks(child.pid)
            assert ticks is not None
            yield Process(child.pid, ticks, 0.0, "", child), child
        finally:
            child.kill()


def test_one_whose_first_thread_has_ended_is_alive_and_can_be_stopped() -> None:
    with started(OUTLIVES) as (process, _):
        until(lambda: state(process.pid) == "Z", "its first thread has ended")
        assert process.alive
        assert process.members() == [process.pid]
        asyncio.run(process.stop(1.0))
        assert not process.alive


def test_one_that_is_only_starting_ends_as_it_is_asked() -> None:
    with started(STARTS_SLOWLY) as (process, child):
        asyncio.run(process.stop(20.0))
        assert child.returncode == 7


def test_how_it_ended_is_known_of_one_that_ended_before_anybody_looked() -> None:
    with started("print('there', flush=True); raise SystemExit(7)") as (process, child):
        until(lambda: not process.alive, "it has ended")
        asyncio.run(process.ended())
        assert child.returncode == 7


def test_whatever_is_in_an_instances_group_ends_with_its_engine(
    make_rig: Callable[..., Rig],
) -> None:
    """As a process that an engine which was taken over has started, and that shows no mark."""
    rig = make_rig()
    rig.usual = VALKEY
    instance_id = rig.make()
    files = groups_of(rig.engine_pid(instance_id))
    if os.geteuid() != 0 or not files:
        pytest.skip("needs control groups, and root to put a process into one")
    with subprocess.Popen(["sleep", "600"], start_new_session=True) as hidden:
        for file in files:
            file.write_text(str(hidden.pid))
        rig.action(instance_id, "pause")
        assert hidden.wait(30) == -9
    rig.action(instance_id, "resume")
    with subprocess.Popen(["sleep", "600"], start_new_session=True) as left:
        for file in groups_of(rig.engine_pid(instance_id)):
            file.write_text(str(left.pid))
        pid = rig.engine_pid(instance_id)
        rig.kill()
        os.kill(pid, 9)
        rig.start()
        assert left.wait(30) == -9


def groups_of(pid: int) -> list[Path]:
    """The files by which its groups are entered."""
    found = []
    for line in Path(f"/proc/{pid}/cgroup").read_text().splitlines():
        _, names, path = line.split(":", 2)
        base = Path("/sys/fs/cgroup") / names / path.strip("/")
        if "inst_" in path and (file := base / "cgroup.procs").exists():
            found.append(file)
    return found


def test_what_a_process_left_in_its_session_ends_with_it() -> None:
    """A sandbox that ends while it makes its child leaves it behind, waiting for ever."""
    words = ["/bin/sh", "-c", "sleep 60 & echo $!; exec sleep 0.1"]
    with subprocess.Popen(words, start_new_session=True, stdout=subprocess.PIPE) as leader:
        assert leader.stdout is not None
        left = int(leader.stdout.readline())
        leader.wait()
        assert Path(f"/proc/{left}/stat").exists()
        processes.kill_tree(leader.pid)
        until(lambda: not processes._stat_fields(left), "it has ended")
