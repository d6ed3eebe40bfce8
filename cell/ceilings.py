"""The ceiling of an instance's storage: above it, the engine does not run until it has more."""

import stat
from pathlib import Path

from cell.engines.driver import EngineError
from cell.residents import Resident
from cell.runtime.host import size_bytes
from cell.runtime.process import Process

GB = 10**9


class FullError(EngineError):
    """The instance's files exceed the ceiling; trying again does not help."""


def excess(resident: Resident) -> str | None:
    """The reason shown to the owner if a running engine exceeds its ceiling, as last measured."""
    if resident.process is None:
        return None
    nameless = nameless_bytes(resident.process, resident.site.data)
    return _told(resident, resident.metrics.storage_bytes + nameless)


def check(resident: Resident) -> None:
    """Raises FullError if an engine that is not running must not be started."""
    if (told := _told(resident, size_bytes(resident.site.data))) is not None:
        raise FullError(told)


def nameless_bytes(process: Process, data: Path) -> int:
    """The size of files that an engine has removed but keeps open, as MariaDB does for sorting."""
    total = 0
    try:
        disk = data.stat().st_dev
        opened = list(Path(f"/proc/{process.pid}/fd").iterdir())
    except OSError:
        # The process has ended, or may not be inspected.
        return 0
    for path in opened:
        try:
            found = path.stat()
        except OSError:
            continue
        if stat.S_ISREG(found.st_mode) and found.st_nlink == 0 and found.st_dev == disk:
            total += found.st_blocks * 512
    return total


def _told(resident: Resident, used_bytes: int) -> str | None:
    size = resident.record.spec.size
    if used_bytes <= size.ceiling_bytes:
        return None
    return (
        f"the storage is full: {used_bytes / GB:.2f} GB of {size.storage_bytes / GB:.2f} GB were "
        "used; choose more storage or a larger size (resize), and the instance runs again with its "
        "data"
    )
