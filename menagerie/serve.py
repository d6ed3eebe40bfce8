"""`menagerie serve`: every part of the service on this machine, as children of one process."""

import fcntl
import http.client
import json
import os
import signal
import socket
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from threading import Event
from types import FrameType

import structlog

from menagerie import health, keys, walk
from menagerie.endpoints import Owner, make_certificates, read_endpoints
from menagerie.errors import SettingsError
from menagerie.held_ports import ports_held
from menagerie.inherited_settings import environment
from menagerie.processes import Child, RefusedError
from menagerie.recovery.schedule import backups_made
from menagerie.settings import Settings

_LOG = structlog.get_logger(__name__)
# A part that fails ends, and is counted. One that is slow may be bringing a large database up to
# date, which to break off would be to begin again at the next start.
_READY_S = 600.0
_HEALTH_BYTES_MAX = 1 << 20
_TEND_S = 0.05
_TELL_S = 30.0
_TRIES = 3
# Longer than the slowest part may take to end.
_LEFT_S = 45.0
_STOP_S = {"api": 10.0, "gateway": 8.0, "cell": 30.0}


@contextmanager
def only_one(root: Path) -> Iterator[None]:
    """Hold this home for one `serve` at a time. Raises SettingsError when another has it."""
    root.mkdir(mode=0o700, parents=True, exist_ok=True)
    lock = os.open(root / "serve.lock", os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o600)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        holder = os.read(lock, 20).decode().strip() or "unknown"
        os.close(lock)
        raise SettingsError(
            f"another `menagerie serve` is running on {root} (pid {holder}); stop it or pass --home"
        ) from error
    os.truncate(lock, 0)
    os.write(lock, f"{os.getpid()}\n".encode())
    try:
        yield
    finally:
        os.close(lock)


@contextmanager
def parts_ended(root: Path) -> Iterator[int]:
    """Wait until no part of a `serve` that was killed is left: they end by themselves.

    What is yielded is to be inherited by each part that is started, as it is held by those that
    live. Raises SettingsError where some do not end.
    """
    lock = os.open(root / "parts.lock", os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o600)
    give_up_at = time.monotonic() + _LEFT_S
    told = False
    try:
        while True:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if time.monotonic() > give_up_at:
                    raise SettingsError(
                        f"processes of a killed `menagerie serve` are still running on {root}; stop"
                        " the processes `menagerie api`, `cell` and `gateway` of this home"
                    ) from None
            if not told:
                _LOG.info("waiting for processes of a killed serve to exit")
                told = True
            time.sleep(0.05)
        yield lock
    finally:
        os.close(lock)


@dataclass
class Serve:
    """The parts of one installation, started together and stopped in order."""

    settings: Settings
    stopping: Event = field(default_factory=Event)
    children: dict[str, Child] = field(default_factory=dict)
    parts_lock: int = -1

    def run(self) -> int:
        """Serve until SIGTERM or SIGINT; the exit status."""
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self._on_signal)
        root = self.settings.root
        with (
            only_one(root),
            parts_ended(root) as self.parts_lock,
            ports_held(self.settings) as self.settings,
        ):
            try:
                return self._run()
            finally:
                self.stop()

    def _on_signal(self, _number: int, _frame: FrameType | None) -> None:
        self.stopping.set()

    def _run(self) -> int:
        keys.make_all(self.settings.root)
        self.settings.cell_home.mkdir(mode=0o700, exist_ok=True)
        self._wait_for_former_cell()
        self._start("cell")
        is_first = read_endpoints(self.settings.root) is None
        make_certificates(self.settings)
        self._start("gateway")
        owner = self._start_api(is_first=is_first)
        is_ready = self._wait_until_ready()
        endpoints = read_endpoints(self.settings.root)
        assert endpoints is not None, "the first start wrote them"
        if not is_ready:
            if owner is not None:  # whose password no later start will know
                print(walk.introduction(self.settings, endpoints, owner), flush=True)  # noqa: T201 -- for people
            return 0 if self.stopping.is_set() else 1
        print(walk.welcome(self.settings, endpoints, owner), flush=True)  # noqa: T201 -- for people
        with backups_made(self.settings) as backups:
            while not self.stopping.wait(0.2):
                for child in self.children.values():
                    child.tend()
                backups.tend()
        return 0

    def _wait_for_former_cell(self) -> None:
        """One whose `serve` was killed still ends, and would tell what it found at its start."""
        deadline = time.monotonic() + _STOP_S["cell"]
        lock = os.open(self.settings.cell_home / "cell.lock", os.O_RDWR | os.O_CREAT, 0o600)
        try:
            while not self.stopping.is_set() and time.monotonic() < deadline:
                with suppress(BlockingIOError):
                    fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    return
                self.stopping.wait(0.05)
        finally:
            os.close(lock)

    def _start(self, part: str, telling: int | None = None) -> None:
        child = Child(part, environment(self.settings), (self.parts_lock,))
        child.start(telling)
        self.children[part] = child

    def _start_api(self, *, is_first: bool) -> Owner | None:
        """It makes the first start, as it has loaded all that this takes; the owner it made.

        Raises SystemExit once it has said why it could not.
        """
        if not is_first:
            self._start("api")
            return None
        reading, writing = os.pipe()
        self._start("api", writing)
        os.close(writing)
        with os.fdopen(reading, "rb") as pipe:
            told = pipe.read()
        if not told:
            process = self.children["api"].process
            raise SystemExit(process.wait() if process else 1)
        owner = json.loads(told)
        return owner and Owner(**owner)

    def _wait_until_ready(self) -> bool:
        started = told = time.monotonic()
        asked, began, ask_at = self.settings.api_url_local, 0.0, 0.0
        while not self.stopping.wait(_TEND_S):
            for child in self.children.values():
                child.tend()
            now = time.monotonic()
            if now >= ask_at and self._gateway_serves() and self._cell_serves():
                if _is_well(asked):
                    return True
                began = began or now
                ask_at = now + health.pause_s(now - began, _TEND_S)
            given_up = [name for name, each in self.children.items() if each.crashes >= _TRIES]
            if given_up:
                _LOG.error("failed to start; see the log lines above", parts=given_up)
                return False
            waited_s = round(time.monotonic() - started)
            if waited_s > _READY_S:
                _LOG.error("not ready in time", waited_s=waited_s, asked=asked)
                return False
            if time.monotonic() - told > _TELL_S:
                told = time.monotonic()
                _LOG.warning("not ready yet", waited_s=waited_s, asked=asked)
        return False

    def _gateway_serves(self) -> bool:
        """It describes itself once its workers listen; another's words stay after a kill -9."""
        try:
            told = json.loads((self.settings.cell_home / "run" / "gateway.json").read_bytes())
        except (OSError, ValueError):
            return False
        process = self.children["gateway"].process
        return process is not None and bool(told.get("pid") == process.pid)

    def _cell_serves(self) -> bool:
        # Below a deep home it is a link: the path of a socket may not be long.
        try:
            with socket.socket(socket.AF_UNIX) as probe:
                probe.connect(str((self.settings.cell_home / "run" / "cell.sock").resolve()))
        except OSError:
            return False
        return True

    def stop(self) -> None:
        for part, timeout_s in _STOP_S.items():
            if part in self.children:
                self.children[part].stop(timeout_s)


def _is_well(url: str) -> bool:
    """Asked by the standard library: a client that is loaded for this alone stays in memory."""
    connection = http.client.HTTPConnection(url.removeprefix("http://"), timeout=5)
    try:
        connection.request("GET", "/healthz")
        answer = connection.getresponse()
        said = json.loads(answer.read(_HEALTH_BYTES_MAX))
        if answer.status != http.client.OK or health.missing(said):
            return False
    except (OSError, ValueError, LookupError, http.client.HTTPException):
        return False
    else:
        for each in health.warnings(said):
            _LOG.warning("ready with a warning", reason=each)
        return True
    finally:
        connection.close()


def main(settings: Settings) -> int:
    try:
        return Serve(settings).run()
    except SettingsError as error:
        print(f"menagerie serve: {error}", file=sys.stderr)  # noqa: T201 -- for people
        return 2
    except RefusedError as error:
        print(f"menagerie serve: {error}", file=sys.stderr)  # noqa: T201 -- for people
        return 1
