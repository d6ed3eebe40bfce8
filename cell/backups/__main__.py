"""A backup unpacked with the recovery key, where its cell is lost: `python -m cell.backups …`."""

import argparse
import sys
from pathlib import Path

from cell.backups import lineage, reading
from cell.backups.keys import RecoveryError, unwrap
from cell.backups.manifest import MANIFEST_BYTES_MAX, BackupName
from cell.backups.sealed_objects import DamagedError, clear_text
from cell.backups.store import Store, StoreError


def main(words: list[str] | None = None) -> int:
    """Writes into a folder what the engine's driver had copied; 1 where that cannot be done."""
    parser = argparse.ArgumentParser(
        prog="python -m cell.backups",
        description="Unpack a backup with the recovery key, without the cell that made it.",
    )
    parser.add_argument("--store", required=True, help="URL of the store, as backup_store_url")
    parser.add_argument("--recovery-key", required=True, type=Path, help="file of the age identity")
    parser.add_argument("backup", help="<instance id>/<backup id>")
    parser.add_argument("folder", type=Path, help="a new folder to write to")
    given = parser.parse_args(words)
    name = BackupName.parse(given.backup)
    try:
        store = Store(given.store)
        sealed = store.get(name.manifest, MANIFEST_BYTES_MAX)
        key = unwrap(given.recovery_key.read_text(), clear_text(sealed))
        found = reading.manifest(store, key, name)
        whole = lineage.of(store, key, found)
        lineage.unpack(store, key, whole, given.folder)
    except (StoreError, DamagedError, RecoveryError, OSError) as error:
        sys.stderr.write(f"{error}\n")
        return 1
    told = f"{found.engine} {found.engine_version}, {found.size_bytes} bytes"
    # Whoever has the store can have sealed anything, also what drives a terminal.
    told = told.encode("unicode_escape").decode("ascii")
    sys.stdout.write(f"{given.folder}: {told}\nsha256 of its manifest: {found.stored_sha256}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
