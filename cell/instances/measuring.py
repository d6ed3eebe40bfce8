"""What instances use, looked at each second; one whose files take long to count delays no other."""

import asyncio
import time
from collections.abc import Callable, Coroutine, Iterable
from typing import Any, Final

import structlog

from cell.engines.storage_use import StorageUse
from cell.instances import ceilings
from cell.instances.exact_counts import ExactCounts
from cell.instances.hosted import HostedInstance
from cell.runtime.process import Process

log = structlog.get_logger("cell.measuring")

SLOW_S: Final = 0.2
"""One that once took so long, as a million files do, is measured apart from then on."""
FIRST_S: Final = 5.0
"""So long a look waits for those that are new; at its start, the cell serves nobody before."""


def measure(instance: HostedInstance) -> None:
    """In a thread, as it may take long."""
    instance.metrics = instance.driver.metrics(instance.site, instance.process)


class Measuring:
    """`end_full` is told of each engine that is past its instance's ceiling, and of its bytes."""

    def __init__(
        self,
        spawn: Callable[[Coroutine[Any, Any, None]], asyncio.Task[None]],
        end_full: Callable[[HostedInstance, Process, int], None],
    ) -> None:
        self._spawn = spawn
        self._end_full = end_full
        # By instance; the first time, too, as nobody knows yet how long it takes.
        self._apart: dict[str, asyncio.Task[None]] = {}
        self._slow: set[str] = set()
        self._quick: set[str] = set()
        self._exact = ExactCounts()
        self._nameless = StorageUse()

    async def look(self, instances: Iterable[HostedInstance]) -> None:
        """Returns when those that are quick have been measured, and new ones had a while."""
        there = [each for each in instances if each.record.desired != "erased"]
        self._forget(each.instance_id for each in there)
        new = [each.instance_id for each in there if each.instance_id not in self._apart]
        for instance in there:
            task = self._apart.get(instance.instance_id)
            if instance.instance_id not in self._quick and (task is None or task.done()):
                task = self._spawn(self._measured([instance], []))
                self._apart[instance.instance_id] = task
        if new:
            await asyncio.wait([self._apart[name] for name in new], timeout=FIRST_S)
        quick = self._quick - set(new)
        await self._together([each for each in there if each.instance_id in quick])

    async def _together(self, instances: list[HostedInstance]) -> None:
        """One that takes long for the first time keeps the others for a while, and only once."""
        begun: list[str] = []
        task = self._spawn(self._measured(instances, begun))
        _, late = await asyncio.wait([task], timeout=FIRST_S)
        if late and begun and (name := begun[-1]) in self._quick:
            self._quick.discard(name)
            self._slow.add(name)
            self._apart[name] = task

    def _forget(self, there: Iterable[str]) -> None:
        for gone in self._apart.keys() - set(there):
            del self._apart[gone]
            self._slow.discard(gone)
            self._quick.discard(gone)
            self._exact.forget(gone)

    async def _measured(self, instances: list[HostedInstance], begun: list[str]) -> None:
        for full in await asyncio.to_thread(self._measure, instances, begun):
            self._end_full(*full)

    def _measure(
        self, instances: list[HostedInstance], begun: list[str]
    ) -> list[tuple[HostedInstance, Process, int]]:
        """`begun` gets the ID of each before it is looked at."""
        full = []
        for instance in instances:
            began = time.monotonic()
            begun.append(instance.instance_id)
            process = instance.process
            try:
                measure(instance)
                used = ceilings.excess(instance, self._nameless) or self._exact.excess(instance)
                if used is not None and process is not None:
                    full.append((instance, process, used))
            except Exception as error:  # noqa: BLE001 - what one makes of its files concerns no other
                reason = repr(error)
                log.warning("cell.not_measured", instance_id=instance.instance_id, reason=reason)
            if time.monotonic() - began > SLOW_S:
                self._slow.add(instance.instance_id)
                self._quick.discard(instance.instance_id)
            elif instance.instance_id not in self._slow:
                self._quick.add(instance.instance_id)
        return full
