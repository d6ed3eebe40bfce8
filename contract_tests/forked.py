"""Processes of ours that are forked from one which has loaded their program already.

To load what a cell consists of takes half a second of a CPU, and tests start hundreds of cells and
gateways. Each has a process of its own all the same, with its own arguments, environment and log.
"""

import atexit
import contextlib
import importlib.util
import json
import os
import selectors
import signal
import socket
import subprocess
import sys
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any

MESSAGE_BYTES_MAX = 2**18


class Forked:
    """What tests use of `Popen`, for a process that is a child of another one."""

    def __init__(self, reply: socket.socket) -> None:
        self._reply = reply
        self.pid = int(reply.recv(64))
        self.returncode: int | None = None

    def poll(self) -> int | None:
        try:
            return self.wait(0)
        except subprocess.TimeoutExpired:
            return None

    def wait(self, timeout: float | None = None) -> int:
        if self.returncode is None:
            self._reply.settimeout(timeout)
            try:
                self.returncode = int(self._reply.recv(64))
            except (BlockingIOError, TimeoutError):
                raise subprocess.TimeoutExpired(str(self.pid), timeout or 0.0) from None
            self._reply.close()
        return self.returncode

    def send_signal(self, number: int) -> None:
        if self.poll() is None:
            os.kill(self.pid, number)

    def terminate(self) -> None:
        self.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)


def fork(
    program: Path, arguments: Sequence[str], *, log: Path, new_session: bool = False
) -> Forked:
    """Runs the `main` of a program with these arguments; what it writes goes to the end of `log`.

    All else is as it would be for a child of this process at this moment.
    """
    asked = {
        "arguments": arguments,
        "environment": dict(os.environ),
        "cpus": list(os.sched_getaffinity(0)),
        "log": str(log),
        "new_session": new_session,
    }
    reply, other = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with other:
        socket.send_fds(_parent_of(program), [json.dumps(asked).encode()], [other.fileno()])
    return Forked(reply)


@cache
def _parent_of(program: Path) -> socket.socket:
    """To the process that has loaded it, which ends when this one does."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with theirs:
        process = subprocess.Popen(
            [sys.executable, __file__, str(program), str(theirs.fileno())],
            pass_fds=[theirs.fileno()],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            cwd=Path(__file__).parents[1],
        )

    def end() -> None:
        ours.close()
        process.wait()

    atexit.register(end)
    return ours


# In the process that has loaded the program.


def _forked(requests: socket.socket) -> dict[str, Any] | None:
    """In a new process, what it was asked for; in this one nothing, once nobody asks any more."""
    replies: dict[int, tuple[int, socket.socket]] = {}
    with selectors.DefaultSelector() as ready, requests:
        ready.register(requests, selectors.EVENT_READ)
        while True:
            for key, _ in ready.select():
                if key.fileobj is not requests:
                    ready.unregister(key.fd)
                    pid, reply = replies.pop(key.fd)
                    _tell_end(key.fd, pid, reply)
                    continue
                asked, descriptors, _, _ = socket.recv_fds(requests, MESSAGE_BYTES_MAX, 1)
                if not asked:
                    return None
                reply = socket.socket(fileno=descriptors[0])
                pid = os.fork()
                if pid == 0:
                    for descriptor, (_, other) in replies.items():
                        os.close(descriptor)
                        other.close()
                    reply.close()
                    return dict(json.loads(asked))
                reply.send(str(pid).encode())
                descriptor = os.pidfd_open(pid)
                replies[descriptor] = (pid, reply)
                ready.register(descriptor, selectors.EVENT_READ)


def _tell_end(descriptor: int, pid: int, reply: socket.socket) -> None:
    os.close(descriptor)
    status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    # Unless nobody waits for it.
    with reply, contextlib.suppress(OSError):
        reply.send(str(status).encode())


def _become(asked: dict[str, Any]) -> None:
    if asked["new_session"]:
        os.setsid()
    os.environ.clear()
    os.environ.update(asked["environment"])
    os.sched_setaffinity(0, asked["cpus"])
    log = os.open(asked["log"], os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    os.dup2(log, 1)
    os.dup2(log, 2)
    os.close(log)


def _loaded(path: Path) -> Any:
    found = importlib.util.spec_from_file_location("program", path)
    assert found is not None
    assert found.loader is not None
    module = importlib.util.module_from_spec(found)
    found.loader.exec_module(module)
    return module


if __name__ == "__main__":
    sys.path[0] = str(Path(__file__).parents[1])
    program = _loaded(Path(sys.argv[1]))
    asked = _forked(socket.socket(fileno=int(sys.argv[2])))
    if asked is not None:
        _become(asked)
        program.main(asked["arguments"])
