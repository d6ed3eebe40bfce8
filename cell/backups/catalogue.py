"""What a store has of instances, whoever made it; told by names alone, so that no key is needed."""

from typing import Final

from cell.backups.manifest import MANIFEST, BackupName
from cell.backups.two_stores import TwoStores

_PARTS: Final = 3
_INSTANCE: Final = "inst_"


def newest(stores: TwoStores) -> dict[str, BackupName]:
    """By instance, its newest complete backup. Raises StoreError."""
    found: dict[str, BackupName] = {}
    for each in stores.names(""):
        parts = each.split("/")
        if len(parts) != _PARTS or parts[-1] != MANIFEST or not each.startswith(_INSTANCE):
            continue
        name = BackupName(parts[0], parts[1])
        if name.instance_id not in found or found[name.instance_id].backup_id < name.backup_id:
            found[name.instance_id] = name
    return found
