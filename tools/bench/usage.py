"""Owns the benchmark of usage: a month of many instances, rated and invoiced, beside bare SQL.

Both run in this process on one SQLite file, in turns, and are compared by the CPU time that they
take; so other load mostly cancels out. Every instance has spans that change, and is metered in
every hour of the month.

usage: python -m tools.bench.usage [INSTANCES [ROUNDS]]
"""

import resource
import sys
import tempfile
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Final

from rich.console import Console
from sqlalchemy import text

from control.billing import charges, invoicing
from control.policy.issuers import Issuer, Party
from control.policy.months import Month, month_of
from control.policy.price_lists import packaged
from storage.access import organizations, projects
from storage.billing.whose import Whose
from storage.catalogue import cells
from storage.columns import EPOCH
from storage.database import Database

INSTANCES: Final = 10_000
ROUNDS: Final = 3
RATIO_MAX: Final = 3.0
MEMORY_BYTES_MAX: Final = 200 * 10**6
MONTH: Final = month_of(datetime(2026, 1, 15, tzinfo=UTC))
_SPANS_OF_ONE: Final = 4
_AGGREGATES: Final = (
    (
        "SELECT instance_id, team_id, size, storage_bytes, runs,"
        " sum(min(coalesce(until, :end), :end) / 1000 - max(since, :begin) / 1000) FROM spans"
        " WHERE org_id = :org AND since < :end AND (until IS NULL OR until > :begin)"
        " GROUP BY instance_id, team_id, size, storage_bytes, runs"
    ),
    (
        "SELECT subject_id, team_id, region, plan, meter, sum(quantity) FROM meter_entries"
        " WHERE org_id = :org AND hour >= :begin AND hour < :end"
        " GROUP BY subject_id, team_id, region, plan, meter"
    ),
)
_NUMBERS: Final = (
    "WITH RECURSIVE n(i) AS (SELECT 0 UNION ALL SELECT i + 1 FROM n WHERE i + 1 < :count)"
)


def run(count: int, rounds: int = ROUNDS) -> dict[str, Any]:
    with tempfile.TemporaryDirectory(prefix="bench") as directory:
        database = Database(f"sqlite:///{Path(directory) / 'usage.db'}")
        database.migrate()
        org_id = _fill(database, count)
        bare, rated = [], []
        for _ in range(rounds):
            bare.append(_cpu_s(lambda: _aggregate(database, org_id)))
            rated.append(_cpu_s(lambda: _rate(database, org_id)))
        invoiced_s = _cpu_s(lambda: _invoice(database, org_id))
        database.dispose()
    peak_bytes = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    return {
        "instances": count,
        "hours": count * _hours(MONTH),
        "bare_s": min(bare),
        "rated_s": min(rated),
        "invoiced_s": invoiced_s,
        "ratio": invoiced_s / min(bare),
        "peak_bytes": peak_bytes,
    }


def _hours(month: Month) -> int:
    return month.seconds // 3600


def _fill(database: Database, count: int) -> str:
    with database.write() as db:
        org = organizations.create(db, name="Bench", slug="bench", plan="enterprise")
        project = projects.create(db, org.id, name="Bench", slug="bench")
        cells.register(
            db,
            "cell_bench",
            region="local",
            url="http+unix:///nowhere",
            public_url="https://cell.local.localhost:8443",
            instance_domain="localhost",
        )
        given = {
            "org": org.id,
            "team": project.team_id,
            "project": project.id,
            "count": count,
            "hours": _hours(MONTH),
            **_moments(),
        }
        indexes = list(db.execute(text(_INDEXES)))
        for name, _ in indexes:
            db.execute(text(f"DROP INDEX {name}"))
        for statement in _filling():
            db.execute(text(statement), given)
        # Made at once they are sorted; kept while rows are added, each row is a place of its own.
        for _, made in indexes:
            db.execute(text(made))
        return org.id


def _moments() -> dict[str, int]:
    begin, end = ((each - EPOCH) // timedelta(milliseconds=1) for each in (MONTH.begin, MONTH.end))
    return {"begin": begin, "end": end, "part": (end - begin) // _SPANS_OF_ONE}


def _filling() -> list[str]:
    """Instances that never were ready, so that their spans are those written here."""
    return [f"{_NUMBERS} {each}" for each in (_MADE, _LASTED)] + [f"{_NUMBERS}, {_METERED}"]


_INDEXES: Final = """
    SELECT name, sql FROM sqlite_master
    WHERE type = 'index' AND tbl_name = 'meter_entries' AND sql IS NOT NULL
"""
_MADE: Final = """
    INSERT INTO instances (id, org_id, project_id, team_id, name, engine, engine_version, size,
        region, placement, storage_bytes, status, desired_status, host, port, cell_id, updated_at,
        credentials_generation, created_at)
    SELECT printf('inst_%08d', i), :org, :project, :team, i, 'duckdb', '1.5', 's1', 'local',
        'shared', 12000000000, 'deleted', 'deleted', 'h' || i, 443, 'cell_bench',
        :begin, 0, :begin FROM n
"""
_LASTED: Final = """
    INSERT INTO spans (org_id, instance_id, team_id, size, storage_bytes, runs, since, until,
        created_at)
    SELECT :org, printf('inst_%08d', i), :team, 's' || (k % 3), 12000000000, k % 2,
        :begin + k * :part, :begin + (k + 1) * :part, :begin
    FROM n, (SELECT 0 AS k UNION SELECT 1 UNION SELECT 2 UNION SELECT 3)
"""
_METERED: Final = """
    h(j) AS (SELECT 0 UNION ALL SELECT j + 1 FROM h WHERE j + 1 < :hours)
    INSERT INTO meter_entries (subject_id, meter, hour, seq, org_id, team_id, region, plan,
        quantity, created_at)
    SELECT printf('inst_%08d', i), 'backups', :begin + j * 3600000, 0, :org, :team, 'local',
        'enterprise', 20000000000 + i + j, :begin FROM n, h
"""


def _aggregate(database: Database, org_id: str) -> None:
    with database.read() as db:
        for statement in _AGGREGATES:
            for _ in db.execute(text(statement), {"org": org_id, **_moments()}):
                pass


def _rate(database: Database, org_id: str) -> None:
    with database.read() as db:
        tally = charges.tally(db, packaged(), Whose(org_id), MONTH, MONTH.end)
        assert tally.micro_cents > 0


def _invoice(database: Database, org_id: str) -> None:
    """As the worker does: rated while nothing is held, and then made in one transaction."""
    with database.read() as db:
        drafted = invoicing.draft(db, packaged(), org_id, MONTH)
    seller = Party("Bench", "DE", email="bench@example.com")
    issuer = Issuer(seller, MONTH.name, taxes={"DE": 1900})
    with database.write() as db:
        org = organizations.fetch(db, org_id)
        made = invoicing.finalize(db, packaged(), issuer, org, MONTH, drafted)
        assert made is not None


def _cpu_s(act: Callable[[], None]) -> float:
    began = time.process_time()
    act()
    return time.process_time() - began


def main(given: list[str]) -> int:
    found = run(*(int(each) for each in given or [str(INSTANCES)]))
    console = Console()
    console.print(
        f"A month of {found['instances']:,} instances, {found['hours']:,} metered hours:\n"
        f"bare aggregate in SQL {found['bare_s']:.2f} s of CPU, rated {found['rated_s']:.2f} s,"
        f" rated and invoiced {found['invoiced_s']:.2f} s:"
        f" {found['ratio']:.2f} times (limit {RATIO_MAX})\n"
        f"most memory {found['peak_bytes'] / 10**6:.0f} MB (limit {MEMORY_BYTES_MAX // 10**6})"
    )
    is_kept = found["ratio"] <= RATIO_MAX and found["peak_bytes"] <= MEMORY_BYTES_MAX
    return 0 if is_kept else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
