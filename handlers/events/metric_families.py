"""The families of metrics of an organization's instances: how each is named, and what it tells.

docs/monitoring.md has them as a table, which a test holds to this module.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Final, NamedTuple

from control.policy import recovery
from control.policy.catalogue import ENGINES
from control.policy.sizes import SIZES
from handlers.events.exposition import MetricSample, Naming

FRESH_FOR: Final = timedelta(seconds=180)
"""Cells are asked each minute; of one that was silent thrice nothing is known any more."""


class Moment(NamedTuple):
    """When it is told, and how many days the organization's plan can restore."""

    now: datetime
    pitr_days: int


Value = Callable[[Any, Moment], float | None]
Labels = Callable[[Any], Mapping[str, str | None]]


@dataclass(frozen=True)
class MetricFamily:
    """`value` is None where there is nothing to tell of an instance."""

    naming: Naming
    columns: tuple[str, ...]
    value: Value
    labels: Labels = lambda _row: {}

    def samples(self, rows: Iterable[Any], at: Moment) -> Iterable[MetricSample]:
        for row in rows:
            value = self.value(row, at)
            if value is not None:
                told = {name: text or "" for name, text in self.labels(row).items()}
                yield MetricSample({"instance_id": row.id, **told}, value)


def _is_fresh(row: Any, at: Moment) -> bool:
    return row.seen_at is not None and row.seen_at + FRESH_FOR > at.now


def _told(
    name: str,
    column: str,
    help_: str,
    unit: str = "",
    kind: Any = "gauge",
) -> MetricFamily:
    """What the cell told of the instance, as long as that can still be true."""
    naming = Naming(f"menagerie_instance_{name}", kind, help_, unit)

    def value(row: Any, at: Moment) -> float | None:
        found: float | None = getattr(row, column)
        return found if _is_fresh(row, at) else None

    return MetricFamily(naming, ("seen_at", column), value)


def _statements(name: str, protocols: tuple[str, ...], help_: str) -> MetricFamily:
    """Each protocol's under their own name: a command is no transaction."""
    naming = Naming(f"menagerie_instance_{name}", "counter", help_)

    def value(row: Any, at: Moment) -> float | None:
        is_of_these = ENGINES[row.engine].protocol in protocols
        found: float | None = row.statements
        return found if is_of_these and _is_fresh(row, at) else None

    return MetricFamily(naming, ("seen_at", "engine", "statements"), value)


def _limit(name: str, member: str, help_: str, unit: str = "") -> MetricFamily:
    """Of its size."""
    naming = Naming(f"menagerie_instance_{name}", "gauge", help_, unit)

    def value(row: Any, _at: Moment) -> float | None:
        found: float = getattr(SIZES[row.size], member)
        return found

    return MetricFamily(naming, ("size",), value)


def _seconds(name: str, help_: str, columns: tuple[str, ...], value: Value) -> MetricFamily:
    return MetricFamily(
        Naming(f"menagerie_instance_{name}", "gauge", help_, "seconds"), columns, value
    )


def _up(row: Any, at: Moment) -> float | None:
    # Of one that has just become ready its cell is yet to be asked.
    is_new = row.ready_at is not None and row.ready_at + FRESH_FOR > at.now
    if row.seen_at is None and row.status == "running" and is_new:
        return None
    return int(row.status == "running" == row.cell_status and _is_fresh(row, at))


def _started(row: Any, at: Moment) -> float | None:
    return _timestamp(row.started_at) if _is_fresh(row, at) else None


def _timestamp(moment: datetime | None) -> float | None:
    return None if moment is None else moment.timestamp()


def _backup_age(row: Any, at: Moment) -> float | None:
    age = None if row.backed_up_at is None else (at.now - row.backed_up_at).total_seconds()
    return None if age is None else max(0.0, age)


def _window(row: Any, at: Moment) -> list[recovery.MomentRange]:
    ranges = recovery.moment_ranges(row.ranges or ())
    return recovery.window(ranges, at.pitr_days, at.now)


def _earliest(row: Any, at: Moment) -> float | None:
    found = _window(row, at)
    return _timestamp(found[0].begins_at) if found else None


def _latest(row: Any, at: Moment) -> float | None:
    found = _window(row, at)
    return _timestamp(found[-1].ends_at) if found else None


def _info(row: Any) -> Mapping[str, str | None]:
    return {
        **{name: getattr(row, name) for name in ("name", "engine")},
        "version": row.engine_version,
        **{name: getattr(row, name) for name in ("size", "region", "placement")},
        **{name: getattr(row, name) for name in ("project_id", "project", "team_id", "team")},
    }


FAMILIES: Final = (
    MetricFamily(
        Naming("menagerie_instance", "info", "What the instance is; always 1."),
        (
            *("name", "engine", "engine_version", "size", "region", "placement"),
            *("project_id", "project", "team_id", "team"),
        ),
        lambda _row, _at: 1,
        _info,
    ),
    MetricFamily(
        Naming("menagerie_instance_status", "gauge", "1 for the status that the instance has."),
        ("status",),
        lambda _row, _at: 1,
        lambda row: {"status": row.status},
    ),
    MetricFamily(
        Naming(
            "menagerie_instance_up",
            "gauge",
            "Whether its engine runs, by the word of its cell in the last three minutes. Not told"
            " of a new instance before the first word.",
        ),
        ("status", "cell_status", "seen_at", "ready_at"),
        _up,
    ),
    _seconds(
        "last_reading_timestamp_seconds",
        "When its cell last told of the instance, in Unix time.",
        ("seen_at",),
        lambda row, _at: _timestamp(row.seen_at),
    ),
    _seconds(
        "start_time_seconds",
        "When its engine started, in Unix time.",
        ("seen_at", "started_at"),
        _started,
    ),
    _told(
        "restarts", "restarts", "Restarts of its engine after it ended by itself.", "", "counter"
    ),
    _told("cpu_seconds", "cpu_s", "CPU time that its engine used.", "seconds", "counter"),
    _limit("cpu_limit_cores", "vcpu", "CPUs that its size can use.", "cores"),
    _told("memory_bytes", "memory_bytes", "Memory in use, without caches.", "bytes"),
    _limit("memory_limit_bytes", "memory_bytes", "Memory that its size can use.", "bytes"),
    _told("storage_bytes", "stored_bytes", "Storage in use.", "bytes"),
    MetricFamily(
        Naming("menagerie_instance_storage_limit_bytes", "gauge", "Storage that it has.", "bytes"),
        ("storage_bytes",),
        lambda row, _at: int(row.storage_bytes),
    ),
    _told("connections", "connections", "Open connections."),
    _limit("connections_limit", "connections_max", "Connections that its size can have."),
    _statements(
        "transactions",
        ("postgres",),
        "Transactions of a PostgreSQL engine, committed or rolled back.",
    ),
    _statements("commands", ("resp",), "Commands that a Redis or Valkey engine ran."),
    _statements("queries", ("mysql", "https", "mongodb"), "Queries that another engine ran."),
    _seconds(
        "last_backup_timestamp_seconds",
        "When the newest backup that can be restored was completed, in Unix time.",
        ("backed_up_at",),
        lambda row, _at: _timestamp(row.backed_up_at),
    ),
    _seconds(
        "backup_age_seconds",
        "Time since the newest backup that can be restored was completed.",
        ("backed_up_at",),
        _backup_age,
    ),
    _seconds(
        "pitr_earliest_timestamp_seconds",
        "The first moment that the instance can be restored to, in Unix time.",
        ("ranges",),
        _earliest,
    ),
    _seconds(
        "pitr_latest_timestamp_seconds",
        "The last moment that the instance can be restored to, in Unix time.",
        ("ranges",),
        _latest,
    ),
)
"""In the order in which they are told."""
