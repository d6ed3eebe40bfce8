"""Child processes of `menagerie serve`: start, restart with back-off, stop in order."""

import ctypes
import gc
import os
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass, field

import structlog

_LOG = structlog.get_logger(__name__)
_BACK_OFF_S = (0.2, 0.5, 1.0, 2.0, 5.0)
_STEADY_S = 30.0
_PARENT = "MENAGERIE_PARENT_PID"
_OWNER = "MENAGERIE_OWNER_FD"
# With this status a part tells the `serve` that tends it that no start of it can succeed.
REFUSED = os.EX_CONFIG
_PR_SET_PDEATHSIG = 1


class RefusedError(Exception):
    """A part cannot run here, and has said why."""


@dataclass
class Child:
    """One part of the service in a process of its own."""

    part: str
    environment: Mapping[str, str]
    inherits: tuple[int, ...] = ()  # descriptors
    process: subprocess.Popen[bytes] | None = None
    started_at: float = 0.0
    crashes: int = 0
    due_at: float = field(default=0.0)

    def start(self, telling: int | None = None) -> None:
        """`telling` is a descriptor to which this one process writes what `owner_is_told_to`."""
        environment = {**os.environ, **self.environment, _PARENT: str(os.getpid())}
        inherited = self.inherits
        if telling is not None:
            environment[_OWNER] = str(telling)
            inherited += (telling,)
        self.process = subprocess.Popen(  # noqa: S603 -- our own command
            [sys.executable, "-P", "-m", "menagerie.part", self.part],
            env=environment,
            stdin=subprocess.DEVNULL,
            pass_fds=inherited,
            # A Ctrl-C in the terminal reaches the parent alone, which stops the parts in order.
            start_new_session=True,
        )
        self.started_at = time.monotonic()

    def tend(self) -> None:
        """Start the process again when it has ended, later each time it ends early.

        Raises RefusedError where that would be in vain.
        """
        if self.process is None or self.process.poll() is None:
            return
        if self.process.returncode == REFUSED:
            raise RefusedError(
                f"stopped, because the part `{self.part}` cannot run on this home: see above"
            )
        now = time.monotonic()
        if not self.due_at:
            steady = now - self.started_at > _STEADY_S
            self.crashes = 1 if steady else self.crashes + 1
            wait_s = _BACK_OFF_S[min(self.crashes, len(_BACK_OFF_S)) - 1]
            self.due_at = now + wait_s
            _LOG.warning(
                "part exited", part=self.part, code=self.process.returncode, restart_in_s=wait_s
            )
        elif now >= self.due_at:
            self.due_at = 0.0
            self.start()

    def stop(self, timeout_s: float) -> None:
        """Ask it to end, and end it when it has not within `timeout_s`."""
        if self.process is None or self.process.poll() is not None:
            return
        self.process.send_signal(signal.SIGTERM)
        try:
            self.process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            _LOG.warning("part did not exit in time", part=self.part, timeout_s=timeout_s)
            self.process.kill()
            self.process.wait()


def keep_what_loads() -> None:
    """Collect no garbage until `loaded`: there is next to none, and looking takes half a second."""
    gc.disable()


def loaded() -> None:
    """Collect garbage from now on, but not among what was loaded, which stays."""
    gc.freeze()
    gc.enable()


def started_by_serve() -> bool:
    """Whether `menagerie serve` started this process and tends it."""
    return os.environ.get(_PARENT) == str(os.getppid())


def owner_is_told_to() -> int | None:
    """Where the `serve` that started this process waits for the first start; else None."""
    given = os.environ.pop(_OWNER, None)
    return int(given) if given is not None and started_by_serve() else None


def end_with_parent() -> None:
    """Have this process asked to end when the `serve` that started it is gone, however it went."""
    parent = os.environ.get(_PARENT)
    if parent is not None:
        end_with(int(parent))


def end_with(parent: int) -> None:
    """Have this process asked to end when `parent`, which started it, is gone, however it went."""
    if not sys.platform.startswith("linux"):
        return
    ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)
    if os.getppid() != parent:  # it went before the line above
        os.kill(os.getpid(), signal.SIGTERM)
