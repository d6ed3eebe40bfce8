"""A process that moves its files while they are counted hides them from no count of a still one."""

import asyncio
import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from cell.engines import duckdb, file_snapshots
from cell.engines.driver import EngineError, Metrics
from cell.engines.storage_use import HURRIED_BYTES
from cell.instances import exact_counts
from cell.instances.exact_counts import ExactCounts, count
from cell.instances.hosted import HostedInstance
from cell.runtime import process as processes
from cell.runtime import stop_signals
from cell.runtime.engine_files import EnginePath
from cell.runtime.folder_sizes import FILE_BYTES_MIN, FolderSizes, size_bytes
from cell.runtime.process import Process
from contract_tests.cell.rig import SMALL, VALKEY, Rig, until
from contract_tests.cell.runtime.test_process import groups_of

MB = 10**6
HIDDEN_BYTES = 40 * MB
FILES = 2000
WAIT_S = 30.0
# The kernel tells it which folder is being read: after "a", the file lies in there, and in "z"
# before each count begins.
MOVES = """
import ctypes, os, struct, sys
libc = ctypes.CDLL(None)
told = libc.inotify_init1(0)
CLOSED = 0x10
watched = {libc.inotify_add_watch(told, name.encode(), CLOSED): name for name in "az"}
print("moves", flush=True)
while True:
    events = os.read(told, 4096)
    while events:
        number, _, _, length = struct.unpack("iIII", events[:16])
        events = events[16 + length:]
        source, target = ("z", "a") if watched[number] == "a" else ("a", "z")
        if os.path.exists(source + "/hidden"):
            os.rename(source + "/hidden", target + "/hidden")
"""
FILLS = """
import os, sys
for name in "amz":
    os.mkdir(name)
for number in range(2000):
    open(f"m/{number}", "x").close()
with open("z/hidden", "wb") as file:
    os.posix_fallocate(file.fileno(), 0, int(sys.argv[1]))
"""
# Each tells the other, without pause, to go on.
RESISTS = """
import os, signal
os.fork()
print("resists", flush=True)
while True:
    os.killpg(0, signal.SIGCONT)
"""


@contextlib.contextmanager
def program(
    text: str, *words: str, folder: Path | None = None, user: int | None = None
) -> Iterator[Process]:
    """That has said its first word."""
    # Another user may not enter the folder that ours lies in.
    python = [sys.executable] if user is None else ["/usr/bin/env", "python3"]
    line = [*python, "-c", text, *words]
    pipe = subprocess.PIPE
    with subprocess.Popen(
        line, stdout=pipe, start_new_session=True, cwd=folder, user=user
    ) as child:
        try:
            assert child.stdout is not None
            assert child.stdout.readline()
            ticks = processes._start_ticks(child.pid)
            assert ticks is not None
            yield Process(child.pid, ticks, 0.0, "")
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(child.pid, signal.SIGKILL)


@pytest.fixture
def instance(tmp_path: Path) -> HostedInstance:
    data, run = tmp_path / "data", tmp_path / "run"
    for folder in (data, run, *(data / name for name in "amz")):
        folder.mkdir()
    for number in range(FILES):
        (data / "m" / str(number)).touch()
    (data / "z" / "hidden").write_bytes(bytes(HIDDEN_BYTES))
    size = SimpleNamespace(storage_bytes=HIDDEN_BYTES, ceiling_bytes=HIDDEN_BYTES - 1)
    made = SimpleNamespace(
        instance_id="inst_a",
        site=SimpleNamespace(data=EnginePath(data), run=EnginePath(run), directory=tmp_path),
        record=SimpleNamespace(spec=SimpleNamespace(size=size)),
        metrics=Metrics(0, 0, 0.0),
        process=None,
        lent_until=None,
        ceiling_bytes=size.ceiling_bytes,
    )
    return cast("HostedInstance", made)


def test_a_file_that_is_moved_while_others_are_counted_counts(instance: HostedInstance) -> None:
    data = instance.site.data
    with program(MOVES, folder=data.outside) as process:
        deadline = time.monotonic() + WAIT_S
        while size_bytes(data) >= HIDDEN_BYTES:
            assert time.monotonic() < deadline, "it hides nothing"
        for _ in range(3):
            used, _ = count(instance, process)
            assert used is not None
            assert used >= HIDDEN_BYTES


def test_one_that_hides_files_is_past_its_ceiling(
    instance: HostedInstance, monkeypatch: pytest.MonkeyPatch
) -> None:
    disk = 0
    monkeypatch.setattr(exact_counts, "on_disk", lambda _site: disk)
    counts = ExactCounts()
    with program(MOVES, folder=instance.site.data.outside) as process:
        cast(Any, instance).process = process
        assert counts.excess(instance) is None
        disk += HURRIED_BYTES
        assert (counts.excess(instance) or 0) >= HIDDEN_BYTES
        disk += HURRIED_BYTES
        assert counts.excess(instance) is None, "it rests"


def test_one_that_resists_is_ended_in_the_end(
    instance: HostedInstance, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(exact_counts, "REST_S_MIN", 0.0)
    monkeypatch.setattr(exact_counts, "REST", 0)
    monkeypatch.setattr(exact_counts, "CPU_REST", 0)
    monkeypatch.setattr(exact_counts, "LATEST_S", 0.0)
    monkeypatch.setattr(exact_counts, "count", lambda _instance, _process: (None, 0.0))
    counts = ExactCounts()
    with program("print('there', flush=True); import time; time.sleep(600)") as process:
        cast(Any, instance).process = process
        told = [counts.excess(instance) for _ in range(exact_counts.TRIES)]
    assert [each is None for each in told] == [True] * (exact_counts.TRIES - 1) + [False]


def test_two_that_tell_each_other_to_go_on_are_stopped() -> None:
    with program(RESISTS) as process:
        with process.held_still() as is_still:
            assert is_still
            assert len(process.members()) == 2
            used = [processes._stat_fields(pid)[11] for pid in process.members()]
            time.sleep(0.2)
            assert [processes._stat_fields(pid)[11] for pid in process.members()] == used
        assert_goes_on(process)


def test_what_two_hold_still_goes_on_after_both() -> None:
    with program("print('there', flush=True)\nwhile True: pass") as process:
        with process.held_still():
            with process.held_still():
                pass
            assert processes._stat_fields(process.pid)[0] == "T"
        assert_goes_on(process)


# Waits for the disk most of the time.
WRITES = """
import os, sys
file = os.open(sys.argv[1], os.O_RDWR | os.O_CREAT)
print("there", flush=True)
while True:
    os.pwrite(file, os.urandom(65536), 0)
    os.fsync(file)
"""


def test_what_waits_for_the_disk_does_nothing_after_that(tmp_path: Path) -> None:
    path = tmp_path / "file"
    with program(WRITES, str(path)) as process:
        for _ in range(20):
            with process.held_still() as is_still:
                assert is_still
                # What the system was asked before, it may still do.
                time.sleep(0.02)
                before = path.read_bytes()
                time.sleep(0.03)
                assert path.read_bytes() == before


# No text in any encoding of ours, and like the end of a name.
NAMED = """
import ctypes, time
ctypes.CDLL(None).prctl(15, b"\\xff) \\n(")
print("there", flush=True)
time.sleep(600)
"""


def test_a_name_of_any_bytes_hides_nothing() -> None:
    with program(NAMED) as process:
        assert process.alive
        assert process.members() == [process.pid]
        assert processes.uid_of(process.pid) == os.geteuid()
        with process.held_still() as is_still:
            assert is_still
        assert_goes_on(process)
        asyncio.run(process.stop(5.0))
        assert not process.alive or processes._stat_fields(process.pid)[0] in "ZX"


def test_what_is_not_held_still_is_not_copied(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stop_signals, "STOP_FOR_S", -1.0)
    with program("print('there', flush=True)\nwhile True: pass") as process:
        with pytest.raises(EngineError, match="held still"):
            file_snapshots.copy_held(
                process, duckdb._files, EnginePath(tmp_path), tmp_path / "copy"
            )
        assert not (tmp_path / "copy").exists()
        assert_goes_on(process)


def test_what_somebody_else_has_stopped_stays_so() -> None:
    with program("print('there', flush=True)\nwhile True: pass") as process:
        process.signal(signal.SIGSTOP)
        until(lambda: processes._stat_fields(process.pid)[0] == "T", "it is stopped")
        with process.held_still() as is_still:
            assert is_still
        time.sleep(0.05)
        assert processes._stat_fields(process.pid)[0] == "T"


def assert_goes_on(process: Process) -> None:
    deadline = time.monotonic() + WAIT_S
    while any(processes._stat_fields(pid)[0] == "T" for pid in process.members()):
        assert time.monotonic() < deadline


def test_a_second_count_reads_what_has_changed(tmp_path: Path, monkeypatch: Any) -> None:
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "file").touch()
    time.sleep(0.05)
    sizes = FolderSizes()
    empty = sizes.count(tmp_path)
    assert empty == size_bytes(tmp_path) == 4 * FILE_BYTES_MIN
    (tmp_path / "b" / "another").write_bytes(bytes(2**20))
    looked: list[str] = []
    stat = os.stat

    def noted(name: Any, *args: Any, **named: Any) -> os.stat_result:
        looked.append(name)
        return stat(name, *args, **named)

    monkeypatch.setattr(os, "stat", noted)
    assert sizes.count(tmp_path) == empty + 2**20
    assert sorted(looked) == ["another", "file"]


@pytest.mark.nightly
def test_an_engine_whose_files_are_moved_is_ended(make_rig: Callable[..., Rig]) -> None:
    if os.geteuid() != 0:
        pytest.skip("only root can act as an engine that was taken over")
    rig = make_rig()
    rig.usual = VALKEY
    tiny = {**SMALL, "name": "tiny", "storage_bytes": 20 * MB}
    instance_id = rig.make(size=tiny)
    # It may not enter the home, but what its sandbox shows of it.
    found = rig.home / "instances" / instance_id / "data"
    uid = found.stat().st_uid
    groups = groups_of(rig.engine_pid(instance_id))
    with program(FILLS + MOVES, str(400 * MB), folder=found, user=uid) as moving:
        for file in groups:
            file.write_text(str(moving.pid))
        until(lambda: rig.observe(instance_id)["restarts"] > 0, "it is ended")
        assert "the storage is full: 0.4" in rig.log_path.read_text()
