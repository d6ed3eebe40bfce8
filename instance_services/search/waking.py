"""Owns the indexing process: its start, that it is told of new tasks, and its end."""

import contextlib
import os
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Protocol

import structlog

from instance_services.search.allowance import Limits

log = structlog.get_logger()

RESTART_S = 1.0


class TaskListener(Protocol):
    def wake(self) -> None: ...
    def is_alive(self) -> bool: ...


class IndexingProcess:
    """`python -m instance_services.search.indexing_process`, told of tasks by its input.

    It ends when its input does, and is started again when it ends by itself: then it is told so,
    as the batch that it was at may have ended it.
    """

    def __init__(self, folder: Path, limits: Limits) -> None:
        self._words = [
            *(sys.executable, "-P", "-m", "instance_services.search.indexing_process"),
            *(str(folder), *limits.words()),
        ]
        self._process: subprocess.Popen[bytes] | None = None
        self._ending = threading.Event()
        self._ready = threading.Event()
        self._thread = threading.Thread(target=self._keep, name="indexing", daemon=True)

    def start(self) -> None:
        """Returns once what a former process left is in order."""
        self._thread.start()
        while not self._ready.wait(0.1):
            if not self._thread.is_alive():
                raise RuntimeError("the indexing process does not start")

    def stop(self) -> None:
        self._ending.set()
        process = self._process
        if process is not None and process.stdin is not None:
            with contextlib.suppress(OSError):
                process.stdin.close()
        self._thread.join()

    def wake(self) -> None:
        process = self._process
        if process is not None and process.stdin is not None:
            # One that has ended looks for tasks when it is started again.
            with contextlib.suppress(OSError, ValueError):
                os.write(process.stdin.fileno(), b"\n")

    def is_alive(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def _keep(self) -> None:
        words = self._words
        while not self._ending.is_set():
            started = time.monotonic()
            self._process = subprocess.Popen(  # noqa: S603 - our own words
                words, stdin=subprocess.PIPE, stdout=subprocess.PIPE
            )
            assert self._process.stdin is not None
            assert self._process.stdout is not None
            if self._ending.is_set():
                # Who stops it may have seen the former one only.
                self._process.stdin.close()
                self._process.wait()
                return
            # More than fits is no loss: it is woken already.
            os.set_blocking(self._process.stdin.fileno(), False)
            if self._process.stdout.readline():
                self._ready.set()
            status = self._process.wait()
            if self._ending.is_set():
                return
            words = [*self._words, "--after-crash"]
            log.error("the indexing process ended and is started again", status=status)
            self._ending.wait(max(0.0, RESTART_S - (time.monotonic() - started)))
