"""Migrations: what can be migrated into which engine, when one is given up, and what is told."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from types import MappingProxyType
from typing import Any, Final

from control.policy.violations import Violation, wrong

SOURCE_WITHIN: Final = timedelta(hours=24)
"""A migration whose source has not arrived by then is cancelled."""
SOURCE_URL_TTL_S: Final = 900
TELL_EVERY: Final = timedelta(seconds=30)
TELL_SYNC_EVERY: Final = timedelta(minutes=5)
TELL_PERCENT: Final = 10


@dataclass(frozen=True)
class MigrationTarget:
    """What an engine takes: files of these formats, and from a running server whether and how."""

    formats: tuple[str, ...]
    connects: bool = True
    syncs: bool = False
    goes_back: bool = False
    """Whether the sync can be turned round after the cutover."""


FILES: Final = "files"
_POSTGRES: Final = MigrationTarget(
    ("postgres_custom", "postgres_plain", "postgres_directory", FILES), syncs=True, goes_back=True
)
_MYSQL: Final = MigrationTarget(("mysql_dump",), connects=False)
_MARIADB: Final = MigrationTarget(("mysql_dump", FILES), syncs=True)
_RESP: Final = MigrationTarget(("rdb",), syncs=True)
TARGETS: Final[Mapping[str, MigrationTarget]] = MappingProxyType(
    {
        "postgres": _POSTGRES,
        "timescaledb": _POSTGRES,
        "mysql": _MYSQL,
        "mariadb": _MARIADB,
        "redis": _RESP,
        "valkey": _RESP,
        "duckdb": MigrationTarget(("duckdb", FILES), connects=False),
    }
)
"""By engine; into others nothing can be migrated."""


def check_request(engine: str, body: Mapping[str, Any]) -> list[Violation]:
    """Everything wrong with a migration into an instance of an engine that is among TARGETS."""
    target, source = TARGETS[engine], body["source"]
    kind, form = source["kind"], source.get("format")
    found: list[Violation] = []
    if kind == "connection" and not target.connects:
        message = f"a {engine} instance takes files only; send one as an upload"
        found.append(wrong("source/kind", "engine", message))
    if kind == "connection" and form is not None:
        message = "only an upload has a format; leave it out"
        found.append(wrong("source/format", "kind", message))
    if kind == "upload" and form is not None and form not in target.formats:
        message = f"a {engine} instance takes {' or '.join(target.formats)}"
        found.append(wrong("source/format", "engine", message))
    if source.get("table") is not None and form != FILES:
        message = f"only a file of the format {FILES} has a table; leave it out, or say the format"
        found.append(wrong("source/table", "format", message))
    if kind == "upload" and body.get("mode", "copy") != "copy":
        message = "a file has no changes that could follow; choose copy, or migrate by connection"
        found.append(wrong("mode", "kind", message))
    if kind == "connection" and body.get("mode", "copy") != "copy" and not target.syncs:
        message = f"a {engine} instance does not follow a source; choose copy"
        found.append(wrong("mode", "engine", message))
    return found


def check_cutover(engine: str, body: Mapping[str, Any]) -> list[Violation]:
    """Everything wrong with the members of a cutover."""
    if body.get("keep_way_back_s", 0) == 0 or TARGETS[engine].goes_back:
        return []
    message = f"a {engine} source cannot get changes of the instance; leave it out"
    return [wrong("keep_way_back_s", "engine", message)]


def percent(progress: Mapping[str, Any]) -> int | None:
    """How much has been copied, of 100; None if that is not known."""
    for unit in ("bytes", "tables"):
        done, total = progress[f"{unit}_done"], progress[f"{unit}_total"]
        if done is not None and total:
            return int(min(100, 100 * done // total))
    return None


def is_told(
    status: str, at: datetime, done: int | None, told_at: datetime | None, told: int | None
) -> bool:
    """Whether an event tells of progress now; the last one was at `told_at`, at `told` percent."""
    if told_at is None:
        return True
    every = TELL_SYNC_EVERY if status == "syncing" else TELL_EVERY
    return at - told_at >= every or (done or 0) - (told or 0) >= TELL_PERCENT
