"""A copy of a running PostgreSQL beside `pg_dump -Fd -j2` and `pg_restore -j2`, in one run.

Both fill an instance of the same size in the same cell from the same server, with TLS. The tools do
it as a person would who has the URIs of both: their dump goes to a folder in between. A migration
also compares every row of both sides at its end; that is told by itself.
"""

import argparse
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any, Final

from rich.console import Console
from rich.table import Table

from contract_tests.cell.migrations import source_server
from contract_tests.cell.migrations.migration_calls import (
    CONNECTION,
    LOOPBACK,
    ask,
    begun,
    connect,
    observed,
)
from contract_tests.cell.migrations.source_server import PASSWORD, USER, SourceDatabase
from contract_tests.cell.rig import GIB, Rig

VERSION: Final = "17"
DATA_GB: Final = 5.0
TABLES: Final = 4
JOBS: Final = 2
AT_LEAST: Final = 0.8
WITHIN_S: Final = 3600.0
LOOK_EVERY_S: Final = 0.1
# Of a row of pgbench's accounts, with its header and its place in the index.
ROW_BYTES: Final = 150
SIZE: Final = {
    "name": "bench",
    "vcpu": 2.0,
    "memory_bytes": 4 * GIB,
    "storage_bytes": 40 * 10**9,
    "connections_max": 60,
}
# As pgbench makes and fills its accounts.
FILL: Final = """
CREATE TABLE accounts_{number} (aid int NOT NULL, bid int, abalance int, filler char(84));
INSERT INTO accounts_{number} SELECT n, n / 100000 + 1, 0, '' FROM generate_series(1, {rows}) n;
ALTER TABLE accounts_{number} ADD PRIMARY KEY (aid);
"""
COUNT: Final = "SELECT count(*) FROM accounts_{number}"


def fill(shop: SourceDatabase, data_gb: float) -> int:
    """How many rows there are."""
    rows = int(data_gb * 10**9 / ROW_BYTES / TABLES)
    for number in range(TABLES):
        shop.ask(FILL.format(number=number, rows=rows))
    shop.ask("VACUUM ANALYZE")
    return rows * TABLES


def migrated(rig: Rig, instance_id: str, shop: SourceDatabase) -> tuple[float, float]:
    """Seconds until all is copied, with its indexes; and until all is compared and in its place."""
    migration_id = begun(rig, instance_id, CONNECTION)
    began, copied = time.perf_counter(), 0.0
    connect(rig, instance_id, migration_id, shop)
    while True:
        seen = observed(rig, instance_id, migration_id)
        if seen["status"] in ("verifying", "completed") and not copied:
            copied = time.perf_counter() - began
        if seen["status"] == "completed":
            return copied, time.perf_counter() - began
        assert seen["status"] in ("preflight", "copying", "verifying"), seen
        assert time.perf_counter() - began < WITHIN_S
        time.sleep(LOOK_EVERY_S)


def by_tools(rig: Rig, instance_id: str, shop: SourceDatabase, folder: Path) -> float:
    """Seconds until the instance has all, with its indexes."""
    route, credential = rig.route(instance_id), rig.reveal(instance_id)
    assert route is not None
    binaries, dump = shop.server.source.binaries, folder / "dump"
    there = {"PGHOST": "127.0.0.1", "PGPORT": str(shop.server.port), "PGPASSWORD": PASSWORD}
    here = {
        "PGHOST": str(Path(route["socket"]).parent),
        "PGUSER": credential["username"],
        "PGPASSWORD": credential["password"],
    }
    dumping = ["-Fd", f"-j{JOBS}", "-f", str(dump), "-U", USER, "-d", shop.name]
    restoring = [f"-j{JOBS}", "--no-owner", "--no-acl", "-d", "app", str(dump)]
    began = time.perf_counter()
    _run([str(binaries / "pg_dump"), *dumping], there)
    _run([str(binaries / "pg_restore"), *restoring], here)
    return time.perf_counter() - began


def _run(command: list[str], environment: dict[str, str]) -> None:
    subprocess.run(command, env={"PATH": os.environ["PATH"], **environment}, check=True)


def measure(rig: Rig, folder: Path, data_gb: float) -> dict[str, Any]:
    with source_server.running(folder / "source", VERSION) as server:
        shop = server.new_database()
        rows = fill(shop, data_gb)
        size_bytes = int(shop.ask("SELECT pg_database_size(current_database())")[0][0])
        given = {"engine": "postgres", "engine_version": VERSION, "size": SIZE}
        theirs = rig.make(**given)
        tools_s = by_tools(rig, theirs, shop, folder)
        _has(rig, theirs, rows)
        rig.action(theirs, "erase")
        ours = rig.make(**given)
        copied_s, verified_s = migrated(rig, ours, shop)
        _has(rig, ours, rows)
    return {
        "rows": rows,
        "size_bytes": size_bytes,
        "tools": tools_s,
        "copied": copied_s,
        "verified": verified_s,
    }


def _has(rig: Rig, instance_id: str, rows: int) -> None:
    """Raises AssertionError otherwise."""
    found = [ask(rig, instance_id, COUNT.format(number=number)) for number in range(TABLES)]
    assert sum(count for ((count,),) in found) == rows


def show(found: dict[str, Any]) -> bool:
    """Whether the bar holds."""
    title = f"A copy of a PostgreSQL of {found['size_bytes'] / 10**9:.1f} GB, {TABLES} large tables"
    table = Table(title=title)
    for name in ("", "seconds", "tools, seconds", "speed, x tools", "at least"):
        table.add_column(name, justify="left" if not name else "right")
    ratio = float(found["tools"] / found["copied"])
    verdict = f"{AT_LEAST}" if ratio >= AT_LEAST else f"{AT_LEAST} FAIL"
    for what, name, told in (
        ("copied, with indexes", "copied", verdict),
        ("copied, and every row compared", "verified", ""),
    ):
        speed = f"{found['tools'] / found[name]:.2f}"
        table.add_row(what, f"{found[name]:.1f}", f"{found['tools']:.1f}", speed, told)
    Console().print(table)
    print(f"The tools: `pg_dump -Fd -j{JOBS}` to a folder, then `pg_restore -j{JOBS}` of it.")
    return ratio >= AT_LEAST


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--gb", type=float, default=DATA_GB, help="how much the source has")
    data_gb = parser.parse_args().gb
    with tempfile.TemporaryDirectory(prefix="bench") as name:
        folder = Path(name)
        folder.chmod(0o755)
        rig = Rig(folder / "cell", settings={"migration_networks": LOOPBACK})
        try:
            rig.start()
            rig.answers_within_s = WITHIN_S
            return 0 if show(measure(rig, folder, data_gb)) else 1
        finally:
            rig.destroy()


if __name__ == "__main__":
    sys.exit(main())
