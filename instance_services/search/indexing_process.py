"""Owns the process that does the tasks: `python -m instance_services.search.indexing_process`."""

import argparse
import os
import resource
import sys
from pathlib import Path

# structlog would load it to show exceptions in color.
sys.modules.setdefault("rich", None)  # type: ignore[arg-type]  # says that there is none

from instance_services import logs  # noqa: E402
from instance_services.search.indexing import Indexer  # noqa: E402

_WAKE_BYTES = 65_536
_NICE = 5


def _arguments(words: list[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m instance_services.search.indexing_process")
    parser.add_argument("folder", type=Path, help="folder of the data")
    parser.add_argument("--memory-bytes", type=int, help="all memory that it may ask for")
    parser.add_argument("--storage-bytes", type=int, help="refuse to grow beyond this size")
    parser.add_argument(
        "--after-crash", action="store_true", help="the former process ended by itself"
    )
    return parser.parse_args(words)


def main(words: list[str] | None = None) -> int:
    """Says on its output that it is ready; ends when its input does, between two batches."""
    given = _arguments(words)
    logs.set_up("info")
    if given.memory_bytes is not None:
        # Counted is what may be written; what is mapped of files is not.
        resource.setrlimit(resource.RLIMIT_DATA, (given.memory_bytes, given.memory_bytes))
    # Searches come first, and indexing has a quarter of a CPU that both want.
    os.nice(_NICE)
    indexer = Indexer(given.folder, storage_bytes=given.storage_bytes)
    indexer.recover(after_crash=given.after_crash)
    os.write(sys.stdout.fileno(), b"ready\n")
    os.set_blocking(sys.stdin.fileno(), True)
    while True:
        while indexer.step():
            pass
        if not os.read(sys.stdin.fileno(), _WAKE_BYTES):
            indexer.close()
            return 0


if __name__ == "__main__":
    sys.exit(main())
