"""Owns the process that does the tasks: `python -m instance_services.search.indexing_process`."""

import os
import sys
from pathlib import Path

# structlog would load it to show exceptions in color.
sys.modules.setdefault("rich", None)  # type: ignore[arg-type]  # says that there is none

from instance_services import logs  # noqa: E402
from instance_services.search.indexing import Indexer  # noqa: E402

_WAKE_BYTES = 65_536


def main(folder: Path) -> int:
    """Says on its output that it is ready; ends when its input does, between two batches."""
    logs.set_up("info")
    indexer = Indexer(folder)
    indexer.recover()
    os.write(sys.stdout.fileno(), b"ready\n")
    os.set_blocking(sys.stdin.fileno(), True)
    while True:
        while indexer.step():
            pass
        if not os.read(sys.stdin.fileno(), _WAKE_BYTES):
            indexer.close()
            return 0


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
