"""Backups of the installation that `serve` makes, one after the other, each in its own process."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Final

import structlog

from menagerie.inherited_settings import environment
from menagerie.recovery import passphrases
from menagerie.settings import Settings

_LOG = structlog.get_logger(__name__)
FIRST_AFTER_S: Final = 15.0
"""Not while engines start. Soon, so that an installation that is new is backed up, too."""
RETRY_S: Final = 60.0
STUCK_S: Final = 3600.0
_END_S: Final = 5.0


@dataclass
class ScheduledBackups:
    """What a backup loads and takes is given back when its process ends."""

    settings: Settings
    due_at: float = field(default_factory=lambda: time.monotonic() + FIRST_AFTER_S)
    process: subprocess.Popen[bytes] | None = None
    began: float = 0.0

    def tend(self) -> None:
        """Begin one that is due, and tell of one that failed. Does not wait."""
        now = time.monotonic()
        if self.process is None:
            if now >= self.due_at and passphrases.is_told(self.settings):
                self._begin(now)
            return
        if now - self.began > STUCK_S:
            _LOG.error("installation backup takes too long, and is ended", limit_s=STUCK_S)
            self.process.kill()
        if (status := self.process.poll()) is not None:
            self._end(status, now)

    def _begin(self, now: float) -> None:
        self.began = now
        self.process = subprocess.Popen(
            [sys.executable, "-P", "-m", "menagerie", "backup", "--scheduled"],
            env={**os.environ, **environment(self.settings)},
            stdin=subprocess.DEVNULL,
            start_new_session=True,
        )

    def _end(self, status: int, now: float) -> None:
        every_s = float(self.settings.installation_backup_every_s)
        if status:
            # Why is in the line before.
            every_s = min(every_s, RETRY_S)
            _LOG.error("installation backup failed", exit_status=status, again_in_s=every_s)
        self.due_at = max(now, self.began + every_s)
        self.process = None

    def stop(self) -> None:
        if self.process is None or self.process.poll() is not None:
            return
        self.process.send_signal(signal.SIGTERM)
        try:
            self.process.wait(_END_S)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()


@contextmanager
def backups_made(settings: Settings) -> Iterator[ScheduledBackups]:
    """While the service runs; one that is being made is broken off at the end."""
    backups = ScheduledBackups(settings)
    try:
        yield backups
    finally:
        backups.stop()
