"""Each act of a cell's client, and the request that it comes to."""

from collections.abc import Callable
from typing import Any

from control.cells.client import CellClient

SPEC = {"engine": "duckdb", "size": {"name": "f0"}}
WANTED = {"source": {"kind": "upload", "format": None}, "mode": "copy", "dry_run": False}
MIGRATION = "mig_01JD0000000000000000000000"
BACKUP = "bkp_01JD0000000000000000000000"
ID = "inst_01JD0000000000000000000000"
ACTS: dict[str, tuple[Callable[[CellClient], Any], str, str, Any]] = {
    "put": (lambda c: c.put(ID, SPEC, key="op_1:put", lease=3), "PUT", "", SPEC),
    "pause": (lambda c: c.pause(ID, key="op_1:put", lease=3), "POST", "/actions/pause", None),
    "resume": (
        lambda c: c.resume(ID, key="op_1:put", lease=3),
        "POST",
        "/actions/resume",
        None,
    ),
    "resize": (
        lambda c: c.resize(ID, {"name": "s0"}, key="op_1:put", lease=3),
        "POST",
        "/actions/resize",
        {"size": {"name": "s0"}},
    ),
    "snapshot": (
        lambda c: c.snapshot(ID, "before", key="op_1:put", lease=3),
        "POST",
        "/actions/snapshot",
        {"label": "before"},
    ),
    "back_up": (
        lambda c: c.back_up(ID, BACKUP, "manual", key="op_1:put", lease=3),
        "POST",
        "/actions/back-up",
        {"backup_id": BACKUP, "kind": "manual"},
    ),
    "drop_backups": (
        lambda c: c.drop_backups(ID, [BACKUP], key="op_1:put", lease=3),
        "POST",
        "/actions/drop-backups",
        {"backup_ids": [BACKUP]},
    ),
    "restore": (
        lambda c: c.restore(ID, BACKUP, key="op_1:put", lease=3),
        "POST",
        "/actions/restore",
        {"backup_id": BACKUP},
    ),
    "delete": (
        lambda c: c.delete(ID, key="op_1:put", lease=3),
        "POST",
        "/actions/delete",
        None,
    ),
    "erase": (lambda c: c.erase(ID, key="op_1:put", lease=3), "POST", "/actions/erase", None),
    "begin_migration": (
        lambda c: c.migrations(ID).begin(MIGRATION, WANTED, key="op_1:put", lease=3),
        "PUT",
        f"/migrations/{MIGRATION}",
        WANTED,
    ),
    "cut_over_migration": (
        lambda c: c.migrations(ID).cut_over(MIGRATION, 60, key="op_1:put", lease=3),
        "POST",
        f"/migrations/{MIGRATION}/actions/cutover",
        {"keep_way_back_s": 60},
    ),
    "cancel_migration": (
        lambda c: c.migrations(ID).cancel(MIGRATION, key="op_1:put", lease=3),
        "DELETE",
        f"/migrations/{MIGRATION}",
        None,
    ),
}


OPERATIONS = {
    "back_up": "backups.make",
    "drop_backups": "backups.drop",
    "restore": "backups.restore",
    "begin_migration": "migrations.begin",
    "cut_over_migration": "migrations.cutover",
    "cancel_migration": "migrations.cancel",
}
