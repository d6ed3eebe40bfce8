"""What is looked up when somebody scrapes: measures of the database, and what the gateway tells."""

import json
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final

import structlog
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric

from control.monitoring.measures import Measure
from storage.database import Database
from storage.errors import StorageUnavailable

DATABASE_UP: Final = "menagerie_database_up"
GATEWAY_SILENT_S: Final = 60.0
"""It writes every ten seconds; what is older is of one that has ended."""
_GATEWAY_BYTES_MAX: Final = 1 << 16
_log = structlog.get_logger("metrics")


class MeasureCollector:
    """All measures in one read transaction; without the database only that it is missing."""

    def __init__(self, database: Database, measures: Iterable[Measure]) -> None:
        self._database = database
        self._measures = tuple(measures)

    def describe(self) -> Iterable[Metric]:
        """None, or the registry would read the database when it gets this."""
        return ()

    def collect(self) -> Iterator[Metric]:
        up = GaugeMetricFamily(DATABASE_UP, "Whether the control plane's database can be read.")
        found: list[Metric] = []
        try:
            with self._database.read() as db:
                for measure in self._measures:
                    family = GaugeMetricFamily(measure.name, measure.help, labels=measure.labels)
                    for labels, value in measure.read(db):
                        family.add_metric(list(labels), value)
                    found.append(family)
            up.add_metric([], 1)
        except StorageUnavailable as error:
            _log.warning("metrics without the database", reason=error.detail)
            found = []
            up.add_metric([], 0)
        yield up
        yield from found


class GatewayCollector:
    """What the gateway of this machine last wrote of itself, in the cell's home."""

    def __init__(self, file: Path, clock: Callable[[], float] = time.time) -> None:
        self._file = file
        self._clock = clock

    def describe(self) -> Iterable[Metric]:
        return ()

    def collect(self) -> Iterator[Metric]:
        told = self._read()
        if told is None:
            return
        up = GaugeMetricFamily(
            "menagerie_gateway_up", "Whether the gateway wrote its figures in the last minute."
        )
        is_up = abs(self._clock() - told["written_at"]) <= GATEWAY_SILENT_S
        up.add_metric([], int(is_up))
        yield up
        if not is_up:
            return
        accepted = CounterMetricFamily(
            "menagerie_gateway_accepted_connections", "Connections that the gateway accepted."
        )
        accepted.add_metric([], told["counts"].get("accepted", 0))
        yield accepted
        yield _refused(told["counts"])
        for name, help_ in (
            ("connections", "Connections that are open in the gateway."),
            ("handshakes", "Of these, those that have not asked for anything yet."),
        ):
            family = GaugeMetricFamily(f"menagerie_gateway_open_{name}", help_)
            family.add_metric([], told["levels"].get(name, 0))
            yield family

    def _read(self) -> dict[str, Any] | None:
        """None where no gateway has told anything here, or not in full."""
        try:
            with self._file.open("rb") as file:
                told = json.loads(file.read(_GATEWAY_BYTES_MAX))
            written_at = float(told["written_at"])
            counts, levels = (_numbers(told[name]) for name in ("counts", "levels"))
        except (OSError, ValueError, LookupError, TypeError, AttributeError):
            return None
        return {"written_at": written_at, "counts": counts, "levels": levels}


def _numbers(told: Mapping[str, Any]) -> dict[str, float]:
    return {str(name): float(value) for name, value in told.items()}


def _refused(counts: Mapping[str, float]) -> Metric:
    family = CounterMetricFamily(
        "menagerie_gateway_refused_connections",
        "Connections that the gateway refused or ended before anything was asked, by reason.",
        labels=["reason"],
    )
    for name, count in counts.items():
        if name != "accepted":
            family.add_metric([name], count)
    return family
