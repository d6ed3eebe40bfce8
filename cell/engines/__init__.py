"""The drivers of engines, and which of them can run something here."""

from collections.abc import Callable
from dataclasses import dataclass

import structlog

from cell.engines.driver import Driver, EngineRefusal
from cell.engines.duckdb import DuckDB
from cell.engines.mysql import mariadb, mysql
from cell.engines.postgres import PostgreSQL, TimescaleDB
from cell.engines.resp import Redis, Valkey
from cell.engines.search import SearchEngine
from cell.runtime.host import Host

log = structlog.get_logger("cell.engines")

# A further engine joins by its line here.
DRIVERS: tuple[Callable[[Host], Driver], ...] = (
    *(DuckDB, PostgreSQL, TimescaleDB),
    *(Redis, Valkey, mariadb, mysql, SearchEngine),
)
PACKAGES = ("instance_services", "specserver")
"""What services of ours import; packages from the index lie with the interpreter."""


UNROOTED = (
    "run Menagerie as another user than root, or install bubblewrap and util-linux on the cell's "
    "machine, or give it a home that every user can enter, then restart the cell"
)


@dataclass(frozen=True)
class FoundEngines:
    """By engine: the drivers that have a version to run, and why the others have none."""

    drivers: dict[str, Driver]
    refused: dict[str, EngineRefusal]


def find(host: Host, wanted: tuple[str, ...] | None = None) -> FoundEngines:
    """Of all engines, or of those wanted."""
    found = FoundEngines({}, {})
    for driver in (make(host) for make in DRIVERS):
        if wanted is not None and driver.engine not in wanted:
            continue
        refusal = None if driver.versions() else driver.missing
        if host.runs_as_root:
            lacking = host.confinement["uid"].reason
            refusal = EngineRefusal(f"engines must not run as root, and {lacking}", UNROOTED)
        if refusal is None:
            found.drivers[driver.engine] = driver
        else:
            found.refused[driver.engine] = refusal
            log.warning(
                "cell.engine_refused",
                engine=driver.engine,
                reason=refusal.reason,
                remedy=refusal.remedy,
            )
    return found
