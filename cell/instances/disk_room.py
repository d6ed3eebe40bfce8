"""The room on the cell's disk that copies of data may still need, so that none fills it together.

All instances share the disk: what is begun is reckoned with until it ends, although it is written
little by little.
"""

import shutil

from cell.engines.driver import EngineError
from cell.instances.hosted import HostedInstance

# What is unpacked, and what an engine's data is made of it, are on the disk together.
COPIES = 2
# Left to all others on the disk.
SPARE_BYTES = 256 * 2**20


class DiskRoom:
    """By instance: of each, one copy is made or restored at a time."""

    def __init__(self) -> None:
        self._taken: dict[str, int] = {}

    def take(self, instance: HostedInstance, data_bytes: int) -> None:
        """Until it `leave`s. Raises EngineError where so much does not fit beside the others."""
        needed = COPIES * data_bytes
        others = sum(self._taken.values())
        free_bytes = shutil.disk_usage(instance.site.directory).free
        if free_bytes < others + needed + SPARE_BYTES:
            raise EngineError("the cell's disk has no room for copies of the data")
        self._taken[instance.instance_id] = needed

    def leave(self, instance: HostedInstance) -> None:
        self._taken.pop(instance.instance_id, None)
