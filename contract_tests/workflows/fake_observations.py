"""What the fake cell keeps of its instances, in a file, and how it becomes what it tells."""

import sqlite3
import time
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

import orjson

from control.cells.answer_checks import Answer
from control.work import LeaseLost

NETWORK = ("network_version", "allow_cidrs", "client_ca_pem", "domains")


def check_lease(file: sqlite3.Connection, operation: str, lease: int) -> None:
    seen = file.execute("SELECT lease FROM leases WHERE operation = ?", (operation,)).fetchone()
    if seen is not None and lease < seen[0]:
        raise LeaseLost(f"lease {lease} of {operation} is older than {seen[0]}")
    file.execute("INSERT OR REPLACE INTO leases VALUES (?, ?)", (operation, lease))


def read(file: sqlite3.Connection, instance_id: str) -> Answer | None:
    query = "SELECT observation FROM instances WHERE id = ?"
    row = file.execute(query, (instance_id,)).fetchone()
    return None if row is None else dict(orjson.loads(row[0]))


def write(file: sqlite3.Connection, observation: Answer) -> None:
    row = (observation["instance_id"], orjson.dumps(observation).decode())
    file.execute("INSERT OR REPLACE INTO instances VALUES (?, ?)", row)


def networked(observed: Answer, told: Mapping[str, Any]) -> Answer:
    """What is said of clients and domains, unless something newer was said before."""
    spec = dict(observed.get("spec", {}))
    # Absent from what an earlier control plane tells.
    told = {"network_version": 0, **told}
    if told["network_version"] >= observed["network_version"]:
        spec |= {name: told[name] for name in NETWORK}
    return {"spec": spec, "network_version": spec["network_version"]}


def sized(size: Mapping[str, Any]) -> Answer:
    """A cell says the name; the figures are for tests to ask about."""
    return {"size": size["name"], "figures": dict(size)}


def new(instance_id: str) -> Answer:
    return {
        "instance_id": instance_id,
        "status": "running",
        "status_reason": None,
        "paused_by": None,
        "engine": "duckdb",
        "engine_version": "1.5",
        "size": "f0",
        "host": "duckdb.local.localhost",
        "port": 8443,
        "network_version": 0,
        "connections": 0,
        "last_activity_at": None,
        "storage_bytes": 4096,
        "memory_bytes": 1024,
        "cpu_s": 0.0,
        "started_at": datetime.fromtimestamp(time.time(), UTC).isoformat(timespec="milliseconds"),
        "restarts": 0,
        "data_lost": False,
        "credentials": {"generation": 1, "overlap_until": None},
    }
