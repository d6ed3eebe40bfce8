"""The ceiling of an instance's storage: above it, the engine does not run until it has more."""

import time

from cell.engines.driver import FinalError, RefusesWrites, Room
from cell.engines.storage_use import StorageUse
from cell.instances import nameless_files
from cell.instances.hosted import HostedInstance
from cell.runtime.folder_sizes import size_bytes

GB = 10**9
# For a start that reads a long log, and for its rewrite.
LENT_S = 1800.0


class FullError(FinalError):
    """The instance's files exceed the ceiling."""

    def __init__(self, told: str, used_bytes: int) -> None:
        super().__init__(told)
        self.used_bytes = used_bytes


def excess(instance: HostedInstance, nameless_use: StorageUse) -> int | None:
    """The bytes of a running engine that exceeds its ceiling, as last measured.

    An owner's idle sessions may have a thousand files open each, and cost nothing to hold.
    """
    if (process := instance.process) is None:
        return None
    nameless, _ = nameless_use.look(
        instance.site, lambda: nameless_files.count(process.tree(), instance.site.data)
    )
    used_bytes = instance.metrics.storage_bytes + nameless
    if past(instance, used_bytes) is not None:
        return used_bytes
    if instance.metrics.storage_bytes <= instance.ceiling_bytes:
        instance.lent_until = None
    return None


def check(instance: HostedInstance) -> None:
    """Raises FullError if an engine that is not running must not be started."""
    used_bytes = size_bytes(instance.site.data)
    if (told := past(instance, used_bytes)) is not None:
        raise FullError(told, used_bytes)


def lend(instance: HostedInstance, used_bytes: int) -> bool:
    """Whether it may start above its ceiling for a while, so that data is removed, or a log."""
    driver, until = instance.driver, instance.lent_until
    if not isinstance(driver, RefusesWrites):
        return False
    if until is not None and time.monotonic() < until + LENT_S:
        return False
    if used_bytes > driver.lent_share * instance.ceiling_bytes:
        return False
    instance.lent_until = time.monotonic() + LENT_S
    driver.refuse_writes(instance.site)
    return True


def room(instance: HostedInstance) -> Room:
    storage_bytes = instance.record.spec.size.storage_bytes
    return Room(instance.metrics.storage_bytes, storage_bytes, _ceiling_bytes(instance))


def _ceiling_bytes(instance: HostedInstance) -> int:
    ceiling_bytes = instance.ceiling_bytes
    lent = instance.lent_until is not None and time.monotonic() < instance.lent_until
    if lent and isinstance(instance.driver, RefusesWrites):
        return int(instance.driver.lent_share * ceiling_bytes)
    return ceiling_bytes


def past(instance: HostedInstance, used_bytes: int) -> str | None:
    """The reason shown to the owner where so much exceeds the ceiling."""
    size = instance.record.spec.size
    if used_bytes <= _ceiling_bytes(instance):
        return None
    return (
        f"the storage is full: {used_bytes / GB:.2f} GB of {size.storage_bytes / GB:.2f} GB were "
        "used; choose more storage or a larger size (resize), and the instance runs again with its "
        "data"
    )
