"""The ceiling of an instance's storage: above it, the engine does not run until it has more."""

import contextlib
import stat
from collections.abc import Iterable, Iterator
from pathlib import Path

from cell.engines.driver import EngineError
from cell.instances.hosted import HostedInstance
from cell.runtime import engine_files
from cell.runtime.engine_files import EnginePath
from cell.runtime.folder_sizes import size_bytes
from cell.runtime.process import Process

GB = 10**9


class FullError(EngineError):
    """The instance's files exceed the ceiling; trying again does not help."""


def excess(instance: HostedInstance) -> str | None:
    """The reason shown to the owner if a running engine exceeds its ceiling, as last measured."""
    if instance.process is None:
        return None
    nameless = nameless_bytes(instance.process, instance.site.data)
    return _told(instance, instance.metrics.storage_bytes + nameless)


def check(instance: HostedInstance) -> None:
    """Raises FullError if an engine that is not running must not be started."""
    if (told := _told(instance, size_bytes(instance.site.data))) is not None:
        raise FullError(told)


def nameless_bytes(process: Process, data: EnginePath) -> int:
    """The size of files that an engine has removed but keeps open, as MariaDB does for sorting.

    In whichever of its processes: a file that several of them hold counts once.
    """
    if (folder := engine_files.find(data)) is None:
        return 0
    held: dict[int, int] = {}
    for descriptor in _descriptors(process.tree()):
        try:
            found = descriptor.stat()
        except OSError:
            continue
        if stat.S_ISREG(found.st_mode) and found.st_nlink == 0 and found.st_dev == folder.st_dev:
            held[found.st_ino] = found.st_blocks * 512
    return sum(held.values())


def _descriptors(pids: Iterable[int]) -> Iterator[Path]:
    for pid in pids:
        # One that has ended meanwhile, or may not be inspected.
        with contextlib.suppress(OSError):
            yield from Path(f"/proc/{pid}/fd").iterdir()


def _told(instance: HostedInstance, used_bytes: int) -> str | None:
    size = instance.record.spec.size
    if used_bytes <= size.ceiling_bytes:
        return None
    return (
        f"the storage is full: {used_bytes / GB:.2f} GB of {size.storage_bytes / GB:.2f} GB were "
        "used; choose more storage or a larger size (resize), and the instance runs again with its "
        "data"
    )
