"""Keeps what instruments count, and gives it to whoever scrapes: of one process, or of several.

The processes of gunicorn keep their figures in files of one folder, which prometheus-client reads
together. It looks for the folder in the environment when it is imported.
"""

import os
from threading import Lock
from typing import Any, Final

from prometheus_client import (
    CollectorRegistry,
    Counter,
    Gauge,
    Histogram,
    disable_created_metrics,
)
from prometheus_client.multiprocess import MultiProcessCollector, mark_process_dead

from menagerie.monitoring import folder
from specserver.instruments import Instrument

BUCKETS: Final = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30)
SERIES_MAX: Final = 20_000
"""Of one instrument. Labels have few values; more is a mistake, which must not fill the memory."""


class KeptFigures:
    """A listener of instruments. `registry` is that of the process itself."""

    def __init__(self) -> None:
        # Twice as many series, of no use to Prometheus.
        disable_created_metrics()
        self.registry = CollectorRegistry()
        self._kept: dict[Instrument, Any] = {}
        self._seen: dict[Instrument, set[tuple[str, ...]]] = {}
        self._making = Lock()

    def make(self, instrument: Instrument) -> None:
        with self._making:
            if instrument not in self._kept:
                self._seen[instrument] = set()
                self._kept[instrument] = self._made(instrument)

    def add(self, instrument: Instrument, labels: tuple[str, ...], amount: float) -> None:
        if instrument not in self._kept:
            self.make(instrument)
        seen = self._seen[instrument]
        if labels not in seen:
            if len(seen) >= SERIES_MAX:
                return
            seen.add(labels)
        kept = self._kept[instrument]
        kept = kept.labels(*labels) if labels else kept
        if instrument.kind == "histogram":
            kept.observe(amount)
        else:
            kept.inc(amount)

    def _made(self, instrument: Instrument) -> Any:
        about = (instrument.name, instrument.help, instrument.labels)
        if instrument.kind == "counter":
            return Counter(*about, registry=self.registry)
        if instrument.kind == "histogram":
            return Histogram(*about, registry=self.registry, buckets=BUCKETS)
        return Gauge(*about, registry=self.registry, multiprocess_mode="livesum")

    def all_processes(self) -> CollectorRegistry:
        """A registry of what is kept: of this process, or of all that share its folder."""
        if not folder.is_shared():
            return self.registry
        together = CollectorRegistry()
        MultiProcessCollector(together, os.environ[folder.VARIABLE])
        return together


def process_ended(pid: int) -> None:
    """What it had open counts no more; what it did still does."""
    if folder.is_shared():
        mark_process_dead(pid)
