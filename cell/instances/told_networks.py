"""Who may reach an instance, and by which names: as the control plane told last, at once.

What is under way with an instance, as an upgrade or a copy, may take hours, and nobody who was shut
out may come in for as long.
"""

import contextlib
from collections.abc import Iterator, Mapping
from typing import Any

from cell.access import network
from cell.instances.hosted import ROUTED, HostedInstance
from cell.instances.supervisor import Supervisor
from cell.settings import CellSettings
from cell.specification import Spec


class ToldNetworks:
    """What the instances are told of their networks, while that is under way."""

    def __init__(self, settings: CellSettings, supervisor: Supervisor) -> None:
        self._supervisor = supervisor
        self._zone = f"{settings.region}.{settings.instance_domain}"
        self._told: list[tuple[HostedInstance, set[str]]] = []

    async def replace(self, instance: HostedInstance, told: Mapping[str, Any]) -> None:
        """Replaces who may reach it at once; further domains lead to it as soon as they may.

        That is, with a certificate, and when what is under way with the instance is done. What is
        older than what was told before is not taken.
        """
        instance.refuse_erased()
        former = instance.record.spec
        wanted = former.with_network(told)
        self.check(wanted)
        if wanted.network_version < former.network_version:
            return
        with self.told(instance, wanted) as domains:
            if set(former.domains) - domains:
                await self._supervisor.drop_certificates(instance)
            if domains - set(former.domains):
                async with instance.lock:
                    await self._add(instance, domains)

    def check(self, spec: Spec) -> None:
        """Raises Invalid where it says of clients or domains what cannot be."""
        network.check(spec, self._zone)

    async def _add(self, instance: HostedInstance, domains: set[str]) -> None:
        instance.add_domains(sorted(domains))
        if instance.record.desired in ROUTED:
            # Before the gateway hears of the name: there is no moment without a certificate.
            await self._supervisor.certify_domains()
        self._supervisor.save(instance)

    @contextlib.contextmanager
    def told(self, instance: HostedInstance, spec: Spec) -> Iterator[set[str]]:
        """Which of its domains still are the instance's, with which nobody else is told meanwhile.

        A domain leads to one instance: whoever had it loses it at once. It leads to this one once
        it has a certificate. What is older than what was told before is not taken.
        """
        if spec.network_version < instance.record.spec.network_version:
            yield set()
            return
        domains = set(spec.domains)
        for former, left in self._told:
            (left.intersection_update if former is instance else left.difference_update)(domains)
        for other in self._supervisor.instances.values():
            own = other.record.spec
            if other is not instance and domains.intersection(own.domains):
                other.lose_domains(domains)
                self._supervisor.save(other)
        if instance.record.desired != "erased" and instance.restrict(spec):
            self._supervisor.save(instance)
        self._told.append((instance, domains))
        try:
            yield domains
        finally:
            self._told = [each for each in self._told if each[1] is not domains]
