"""How far backups and restores are: what the cell says while it is at them."""

from collections.abc import Mapping
from typing import Any

from control.cells.client import CellRefused, CellUnavailable
from handlers.calls import OrgCall
from storage.data.backups import Backup
from storage.data.restores import Restore
from storage.instances.instances import Instance

Json = dict[str, Any]
_OF_BACKUP = {"copying": "backing_up", "verifying": "verifying"}
"""The phases of a backup, as those of a restore that it goes before."""


def of_backup(call: OrgCall, instance: Instance, backup: Backup) -> Json | None:
    """None unless the cell is at it, and says so."""
    if backup.status != "running":
        return None
    backup_id = backup.id
    return _of("backup", _observed(call, instance, instance.id), backup_id)


def of_restore(call: OrgCall, instance: Instance, restore: Restore) -> Json | None:
    """None unless the cell is at it, or at the backup that goes before it, and says so."""
    if restore.status != "running":
        return None
    # Read before the database is let go of.
    backup_id, before = restore.backup_id, restore.pre_change_backup_id
    observed = _observed(call, instance, restore.target_instance_id)
    made = _of("backup", observed, before)
    if made is not None:
        return {**made, "phase": _OF_BACKUP[made["phase"]]}
    return _of("restore", observed, backup_id)


def _observed(call: OrgCall, instance: Instance, target_id: str) -> Mapping[str, Any]:
    """A restored instance is on the cell of its source."""
    cell = call.services.cells.for_instance(call.db, instance)
    call.release_connection()
    try:
        return cell.observe(target_id) or {}
    except (CellUnavailable, CellRefused):
        return {}


def _of(kind: str, observed: Mapping[str, Any], backup_id: str | None) -> Json | None:
    told = observed.get(kind)
    if told is None or told["backup_id"] != backup_id:
        return None
    return {name: told[name] for name in ("phase", "done_bytes", "total_bytes")}
