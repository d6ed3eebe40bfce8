"""The drivers of engines, and which of them can run something here."""

from collections.abc import Callable

from cell.engines.driver import Driver
from cell.engines.duckdb import DuckDB
from cell.engines.mysql import mariadb, mysql
from cell.engines.postgres import PostgreSQL, TimescaleDB
from cell.engines.resp import Redis, Valkey
from cell.runtime.host import Host

# A further engine joins by its line here.
DRIVERS: tuple[Callable[[Host], Driver], ...] = (
    *(DuckDB, PostgreSQL, TimescaleDB),
    *(Redis, Valkey, mariadb, mysql),
)
PACKAGES = ("instance_services", "specserver")
"""What services of ours import; packages from the index lie with the interpreter."""


def find(host: Host, wanted: tuple[str, ...] | None = None) -> dict[str, Driver]:
    """By engine, those that have a version to run; an engine without one is not there at all."""
    drivers = [make(host) for make in DRIVERS]
    return {
        driver.engine: driver
        for driver in drivers
        if driver.versions() and (wanted is None or driver.engine in wanted)
    }
