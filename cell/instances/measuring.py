"""What instances use, looked at each second; one whose files take long to count delays no other."""

import asyncio
import time
from collections.abc import Callable, Coroutine, Iterable
from typing import Any, Final

import structlog

from cell.instances import ceilings
from cell.instances.hosted import HostedInstance

log = structlog.get_logger("cell.measuring")

SLOW_S: Final = 0.2
"""One that once took so long, as a million files do, is measured apart from then on."""


def measure(instance: HostedInstance) -> None:
    """In a thread, as it may take long."""
    instance.metrics = instance.driver.metrics(instance.site, instance.process)


class Measuring:
    """`end_full` is told of each instance that is past its storage, and what its owner is told."""

    def __init__(
        self,
        spawn: Callable[[Coroutine[Any, Any, None]], asyncio.Task[None]],
        end_full: Callable[[HostedInstance, str], None],
    ) -> None:
        self._spawn = spawn
        self._end_full = end_full
        # By instance, the last time that each of the slow ones was begun with.
        self._apart: dict[str, asyncio.Task[None] | None] = {}

    async def look(self, instances: Iterable[HostedInstance]) -> None:
        """Returns when all but the slow ones have been measured."""
        there = [each for each in instances if each.record.desired != "erased"]
        gone = self._apart.keys() - {each.instance_id for each in there}
        for instance_id in gone:
            del self._apart[instance_id]
        for instance in there:
            if instance.instance_id in self._apart:
                task = self._apart[instance.instance_id]
                if task is None or task.done():
                    self._apart[instance.instance_id] = self._spawn(self._measured([instance]))
        await self._measured([each for each in there if each.instance_id not in self._apart])

    async def _measured(self, instances: list[HostedInstance]) -> None:
        for instance, reason in await asyncio.to_thread(self._measure, instances):
            self._end_full(instance, reason)

    def _measure(self, instances: list[HostedInstance]) -> list[tuple[HostedInstance, str]]:
        full = []
        for instance in instances:
            began = time.monotonic()
            try:
                measure(instance)
                if (told := ceilings.excess(instance)) is not None:
                    full.append((instance, told))
            except OSError as error:
                # Whatever an engine has made of its files.
                reason = str(error)
                log.warning("cell.not_measured", instance_id=instance.instance_id, reason=reason)
            if time.monotonic() - began > SLOW_S:
                self._apart.setdefault(instance.instance_id, None)
        return full
