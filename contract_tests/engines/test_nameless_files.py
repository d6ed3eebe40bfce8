"""Files that an engine has removed and keeps open: they fill the disk, in whichever process."""

import contextlib
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from cell.instances import nameless_files
from cell.runtime.engine_files import EnginePath
from cell.runtime.folder_sizes import FolderSizes, size_bytes
from cell.runtime.process import Process
from contract_tests.engines.conftest import Subject
from contract_tests.engines.postgres_sessions import newest_lent, session

MB = 10**6
# It keeps what it sorts in a file of its session, as it is more than may lie in memory.
SORTED = """DECLARE c CURSOR WITH HOLD FOR
SELECT repeat(n::text, 100) FROM generate_series(1, 40000) n ORDER BY 1"""
SESSIONS = 50
LOOKS = 20


# Slow for what it adds by day.
@pytest.mark.nightly
@newest_lent
def test_a_file_that_a_session_of_postgresql_holds_counts_once(lent: Subject) -> None:
    process, data = lent.process, lent.site.data
    assert process is not None
    assert nameless_files.count(process.tree(), data) < MB
    with session(lent) as connection:
        connection.execute("SET work_mem = '64kB'")
        connection.execute(SORTED)
        files = [path for path in data.outside.glob("base/pgsql_tmp/**/*") if path.is_file()]
        taken = sum(path.stat().st_blocks * 512 for path in files)
        assert taken > 10 * MB
        assert nameless_files.count(process.tree(), data) < MB
        for path in files:
            path.unlink()
        assert taken <= nameless_files.count(process.tree(), data) < taken + MB
    with contextlib.ExitStack() as stack:
        for _ in range(SESSIONS):
            stack.enter_context(session(lent)).execute("SELECT FROM pg_class")
        began = time.process_time()
        for _ in range(LOOKS):
            nameless_files.count(process.tree(), data)
        look_s = (time.process_time() - began) / LOOKS
        # Every second, of each instance.
        assert look_s < 0.1
        assert len(process.tree()) > SESSIONS


# Each leaves 40 MB on the disk that no descriptor of the process's first thread shows.
HIDDEN = {
    "memory": """
import mmap
kept = mmap.mmap(file, 4096)
os.close(file)
""",
    "a socket": """
import socket
one, other = socket.socketpair()
socket.send_fds(one, [b"x"], [file])
os.close(file)
""",
    "a thread's own descriptors": """
import ctypes, threading
begun = threading.Event()
def keep():
    ctypes.CDLL(None).unshare(0x400)
    begun.set()
    time.sleep(600)
threading.Thread(target=keep, daemon=True).start()
begun.wait()
os.close(file)
""",
    "a thread that outlives the first": """
import ctypes, threading
threading.Thread(target=time.sleep, args=(600,)).start()
print("hidden", flush=True)
ctypes.CDLL(None).syscall(60 if os.uname().machine == "x86_64" else 93, 0)
""",
}
HIDE = """
import os, sys, time
file = os.open(sys.argv[1], os.O_RDWR | os.O_CREAT)
os.posix_fallocate(file, 0, 40_000_000)
os.unlink(sys.argv[1])
"""


@pytest.mark.parametrize("hidden", HIDDEN)
def test_what_is_hidden_counts_too(hidden: str, tmp_path: Path) -> None:
    program = HIDE + HIDDEN[hidden] + "print('hidden', flush=True)\ntime.sleep(600)"
    data = EnginePath(tmp_path)
    words = [sys.executable, "-c", program, str(tmp_path / "filled")]
    with subprocess.Popen(words, stdout=subprocess.PIPE) as child:
        try:
            assert child.stdout is not None
            assert child.stdout.readline() == b"hidden\n"
            process = Process(child.pid, 0, 0.0, "")
            deadline = time.monotonic() + 30
            while nameless_files.count(process.tree(), data) < 40 * MB:
                assert time.monotonic() < deadline, "what is hidden is not counted"
        finally:
            child.kill()


@pytest.mark.nightly
@newest_lent
def test_sessions_of_an_engine_that_is_held_still_go_on(lent: Subject) -> None:
    process, data = lent.process, lent.site.data
    assert process is not None
    with contextlib.ExitStack() as stack:
        sessions = [stack.enter_context(session(lent)) for _ in range(10)]
        before = size_bytes(data)
        with process.held_still() as is_still:
            assert is_still
            assert FolderSizes().count(data) >= before / 2
        for each in sessions:
            assert each.execute("SELECT 1").fetchone() == (1,)


RUNS = """
import os, shutil, subprocess, sys, time
shutil.copy("/bin/sleep", sys.argv[1])
with open(sys.argv[1], "r+b") as file:
    os.posix_fallocate(file.fileno(), 0, 40_000_000)
os.chmod(sys.argv[1], 0o700)
child = subprocess.Popen([sys.argv[1], "600"])
while os.readlink(f"/proc/{child.pid}/exe") != sys.argv[1]:
    time.sleep(0.01)
os.unlink(sys.argv[1])
print("hidden", flush=True)
time.sleep(600)
"""


def test_a_program_that_runs_and_is_not_in_memory_counts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It can be unmapped by whom it runs; the system keeps its file for the process."""
    monkeypatch.setattr(nameless_files, "_mapped", lambda *_: ())
    words = [sys.executable, "-c", RUNS, str(tmp_path / "program")]
    with subprocess.Popen(words, stdout=subprocess.PIPE) as child:
        process = Process(child.pid, 0, 0.0, "")
        try:
            assert child.stdout is not None
            assert child.stdout.readline() == b"hidden\n"
            assert nameless_files.count(process.tree(), EnginePath(tmp_path)) >= 40 * MB
        finally:
            for pid in reversed(process.tree()):
                os.kill(pid, signal.SIGKILL)
