"""When the installation was last backed up into the store, noted in its home."""

import json
import time
from pathlib import Path
from typing import Final

from menagerie.keys import write_private

_NOTE: Final = "installation-backup.json"


def note(root: Path, backup_id: str, store_url: str) -> None:
    said = {"backup_id": backup_id, "store_url": store_url, "at": time.time()}
    write_private(root / _NOTE, json.dumps(said).encode())


def at(root: Path, store_url: str) -> float | None:
    """In unix seconds; None where there is none in this store."""
    try:
        said = json.loads((root / _NOTE).read_bytes())
        return float(said["at"]) if said["store_url"] == store_url else None
    except (OSError, ValueError, LookupError, TypeError):
        return None
