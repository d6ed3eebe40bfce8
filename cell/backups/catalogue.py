"""What a store has of instances, whoever made it; told by names alone, so that no key is needed."""

from typing import Final

from cell.backups.manifest import MANIFEST, BackupName
from cell.backups.store import Store

_PARTS: Final = 3
_INSTANCE: Final = "inst_"


def newest(store: Store) -> dict[str, BackupName]:
    """By instance, its newest complete backup. Raises StoreError."""
    found: dict[str, BackupName] = {}
    for each in store.list(""):
        parts = each.name.split("/")
        if len(parts) != _PARTS or parts[-1] != MANIFEST or not each.name.startswith(_INSTANCE):
            continue
        name = BackupName(parts[0], parts[1])
        if name.instance_id not in found or found[name.instance_id].backup_id < name.backup_id:
            found[name.instance_id] = name
    return found
