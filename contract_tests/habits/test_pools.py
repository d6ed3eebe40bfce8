"""What several callers share is in the table of limits (docs/security.md)."""

import ast
from pathlib import Path

from contract_tests.habits.test_imports import SHIPPED
from contract_tests.habits.test_sizes import ROOT, names, parsed

POOLS = {
    *("Semaphore", "BoundedSemaphore", "ThreadPoolExecutor", "Queue", "SimpleQueue"),
    *("Turns", "QueryTurns", "Pool", "ConnectionCounts", "LogFollowers"),
    "DataStreams",
}
# Where one is made: how its rows in the table begin, or why it needs none.
TOLD = {
    "menagerie/account_pages.py": ("threads of the account pages",),
    "menagerie/control_plane.py": ("connections to the API",),
    "cell/agent.py": ("threads of the cell",),
    "cell/console/answers.py": ("such answers",),
    "cell/console/mount.py": ("threads of the console's pages",),
    "cell/engines/mysql/background_calls.py": ("threads that end events of MariaDB",),
    "cell/instances/pools.py": (
        *("engines starting", "engines that take longer to start", "snapshots being made"),
        "all of these that are under way",
        *("statements in the SQL console", "logs being followed", "dumps and downloads of backups"),
        *("migrations that copy", "files of migrations being tried"),
        "objects being copied to the second store",
    ),
    "cell/migrations/redis/follower.py": ("what a Redis sends that is followed",),
    "cell/migrations/sources.py": ("parts of files that are sent for migrations",),
    "cell/instances/wal_archives.py": ("segments of WAL being put into the store",),
    "cell/instances/queues.py": ("requests to the queues of an instance",),
    "gateway/client_certificates.py": ("verifying certificates of clients",),
    "gateway/login_reports.py": ("comparing logins after failed ones",),
    "control/delivery/deliverer.py": ("threads of deliveries for the database",),
    "specserver/shares.py": (
        *("passwords being verified", "threads of the API", "long polls", "request bodies"),
        *("requests waiting for such a thread", "live streams", "downloads"),
    ),
}
NOBODYS = {
    "cell/backups/reading.py": "lasts as long as one backup is read, which has a place",
    "cell/backups/repository.py": "whoever waits there has a place of cell/instances/pools.py",
    "cell/backups/sealed_parts.py": "lasts as long as one backup is uploaded, which has a place",
    "cell/backups/writing.py": "lasts as long as one backup is written, which has a place",
    "cell/engines/mysql/files.py": "lasts as long as one copy, which has a place",
    "cell/instances/data_streams.py": "made by cell/instances/pools.py",
    "cell/instances/log_followers.py": "made by cell/instances/pools.py",
    "cell/runtime/side_digest.py": "lasts as long as one copy, which has a place",
    "control/boundary/last_used.py": "a token is noted once a minute",
    "control/boundary/refusal_log.py": "a user's refusals are entered 20 times a minute at most",
    "control/work/notifier.py": "a bell",
    "instance_services/duckdb/command.py": "of one instance, in its own process",
    "menagerie/monitoring/server.py": "of the operator's port, which no organization reaches",
    "specserver/threads.py": "whoever comes here has a place of specserver/shares.py",
}


def makes_pools(path: Path) -> bool:
    called = (node.func for node in ast.walk(parsed(path)) if isinstance(node, ast.Call))
    return any(getattr(each, "attr", getattr(each, "id", "")) in POOLS for each in called)


def test_every_pool_is_told_of() -> None:
    assert {names(path) for path in SHIPPED if makes_pools(path)} == TOLD.keys() | NOBODYS.keys()


def test_the_table_has_what_is_shared() -> None:
    lines = (ROOT / "docs" / "security.md").read_text().splitlines()
    rows = [line.removeprefix("| ") for line in lines if line.startswith("| ")]
    told = [begins for each in TOLD.values() for begins in each]
    assert not [begins for begins in told if not any(row.startswith(begins) for row in rows)]
