"""The gateway's parent process: it holds the ports, starts workers, and starts them again."""

import contextlib
import os
import signal
import time
import traceback
from pathlib import Path

import orjson
import structlog

from gateway import activity, figures, log_lines, worker
from gateway.cancels import Cancels
from gateway.listening import listen
from gateway.protocol_table import protocols_spoken
from gateway.routes import Routes
from gateway.settings import GatewaySettings
from gateway.slots import Slots

log = structlog.get_logger("gateway")

# A worker that dies at once is started again ever more slowly, but soon enough that a client
# which tries for five seconds gets in.
RESTART_FIRST_S = 0.05
RESTART_MAX_S = 2.0
HEALTHY_AFTER_S = 5.0
SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGCHLD)


def run(settings: GatewaySettings) -> None:
    """Serves until SIGTERM or SIGINT; blocks, and must own the process's main thread."""
    log_lines.configure(settings.log_format, settings.log_level)
    home = settings.cell_home
    for directory in (home / "run", home / "activity"):
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    former = signal.pthread_sigmask(signal.SIG_BLOCK, SIGNALS)
    try:
        _Parent(settings, former).run()
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, former)


class _Parent:
    def __init__(self, settings: GatewaySettings, mask: set[int | signal.Signals]) -> None:
        self._settings = settings
        self._mask = mask
        self._home = settings.cell_home
        self._former: dict[str, activity.Former] = {}
        activity.take_over(self._home / "activity", set(), self._former)
        self._slots = Slots(settings.workers)
        self._cancels = Cancels(settings.workers)
        self._protocols = protocols_spoken(self._cancels, settings.mysql_version)
        self._workers: dict[int, int] = {}
        self._started_at = [0.0] * settings.workers
        self._pause_s = [RESTART_FIRST_S] * settings.workers
        self._due: dict[int, float] = {}
        self._figures_due = 0.0
        self._stopping = False
        # Workers see the end of the parent, however it ends, by the end of this pipe.
        self._lifeline, self._held = os.pipe()
        # The parent keeps every port open, so while a worker restarts its clients wait in the
        # queue of the port instead of being refused.
        self._listeners = listen(settings, frozenset(self._protocols))

    def run(self) -> None:
        for column in range(self._settings.workers):
            self._start(column)
        self._describe()
        log.info("gateway.started", ports=self._ports(), workers=self._settings.workers)
        while not self._wait():
            for column, due in list(self._due.items()):
                if time.monotonic() >= due:
                    del self._due[column]
                    self._start(column)
                    self._describe()
        self._stop()
        log.info("gateway.stopped")

    def _wait(self) -> bool:
        """True when it is time to stop."""
        due = min([*self._due.values(), self._figures_due])
        received = signal.sigtimedwait(SIGNALS, max(0.0, due - time.monotonic()))
        if time.monotonic() >= self._figures_due:
            self._write_figures()
        if received is not None and received.si_signo != signal.SIGCHLD:
            return True
        self._reap()
        return False

    def _write_figures(self) -> None:
        self._figures_due = time.monotonic() + figures.WRITE_EVERY_S
        # A full disk, say, must not end what serves.
        with contextlib.suppress(OSError):
            self._slots.figures.write(self._description.parent)

    def _start(self, column: int) -> None:
        pid = os.fork()
        if pid == 0:
            self._become_worker(column)
        self._workers[pid] = column
        self._started_at[column] = time.monotonic()

    def _become_worker(self, column: int) -> None:
        status = 1
        try:
            os.close(self._held)
            for other, listeners in enumerate(self._listeners):
                for each in listeners if other != column else []:
                    each.socket.close()
            self._slots.use_column(column)
            self._cancels.use_column(column)
            signal.pthread_sigmask(signal.SIG_SETMASK, self._mask)
            worker.run(
                self._settings,
                self._listeners[column],
                self._protocols,
                self._slots,
                self._former,
                self._lifeline,
            )
            status = 0
        except BaseException:  # noqa: BLE001 - whatever it is, this process must end here
            log.error("gateway.worker_failed", reason=traceback.format_exc())  # noqa: TRY400 - one line, in the format set
        finally:
            os._exit(status)

    def _reap(self) -> None:
        for pid, column in list(self._workers.items()):
            done, status = os.waitpid(pid, os.WNOHANG)
            if not done:
                continue
            del self._workers[pid]
            if self._stopping:
                continue  # its file stays, for the next gateway to take over
            self._slots.clear_column(column)
            self._cancels.clear_column(column)
            alive = set(self._workers)
            activity.take_over(self._home / "activity", alive, self._former)
            self._forget_erased()
            lived_s = time.monotonic() - self._started_at[column]
            healthy = lived_s >= HEALTHY_AFTER_S
            pause_s = RESTART_FIRST_S if healthy else self._pause_s[column]
            self._pause_s[column] = min(RESTART_MAX_S, pause_s * 2)
            self._due[column] = time.monotonic() + pause_s
            exit_code = os.waitstatus_to_exitcode(status)
            log.warning("gateway.worker_died", pid=pid, exit_code=exit_code)

    def _stop(self) -> None:
        self._stopping = True
        for listeners in self._listeners:
            for each in listeners:
                each.socket.close()
        self._signal_workers(signal.SIGTERM)
        deadline = time.monotonic() + self._settings.drain_s + 2
        while self._workers and time.monotonic() < deadline:
            signal.sigtimedwait((signal.SIGCHLD,), 0.1)
            self._reap()
        self._signal_workers(signal.SIGKILL)
        for pid in self._workers:
            os.waitpid(pid, 0)
        self._description.unlink(missing_ok=True)
        os.close(self._held)
        os.close(self._lifeline)

    def _forget_erased(self) -> None:
        routes = Routes(self._home / "routes.json")
        if routes.refresh():
            for instance_id in self._former.keys() - routes.instance_ids():
                del self._former[instance_id]

    def _signal_workers(self, number: signal.Signals) -> None:
        for pid in self._workers:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, number)

    def _ports(self) -> dict[str, int]:
        return {
            protocol: each.socket.getsockname()[1]
            for each in self._listeners[0]
            for protocol in each.protocols
        }

    @property
    def _description(self) -> Path:
        return self._home / "run" / "gateway.json"

    def _describe(self) -> None:
        content = {"pid": os.getpid(), "ports": self._ports(), "workers": sorted(self._workers)}
        temporary = self._description.with_suffix(".part")
        temporary.write_bytes(orjson.dumps(content))
        temporary.replace(self._description)
