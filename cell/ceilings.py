"""The hard end of an instance's storage: past it the engine does not run until it has more."""

import stat
from pathlib import Path

from cell.engines.driver import EngineError
from cell.residents import Resident
from cell.runtime.host import size_bytes
from cell.runtime.process import Process

GB = 10**9


class FullError(EngineError):
    """The instance's files are past the ceiling; trying again changes nothing."""


def excess(resident: Resident) -> str | None:
    """What the owner is told where a running engine is past its ceiling, as last measured."""
    if resident.process is None:
        return None
    nameless = nameless_bytes(resident.process, resident.site.data)
    return _told(resident, resident.metrics.storage_bytes + nameless)


def check(resident: Resident) -> None:
    """Raises FullError where an engine that does not run must not be started."""
    if (told := _told(resident, size_bytes(resident.site.data))) is not None:
        raise FullError(told)


def nameless_bytes(process: Process, data: Path) -> int:
    """What an engine keeps open on its disk and has removed, as MariaDB does to what it sorts."""
    total = 0
    try:
        disk = data.stat().st_dev
        opened = list(Path(f"/proc/{process.pid}/fd").iterdir())
    except OSError:
        # It has ended, or may not be looked into.
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
