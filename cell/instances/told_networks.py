"""Who may reach an instance, and by which names: as the control plane told last, at once.

What is under way with an instance, as an upgrade or a copy, may take hours, and nobody who was shut
out may come in for as long.
"""

import contextlib
from collections.abc import Iterator

from cell.instances.hosted import HostedInstance
from cell.instances.supervisor import Supervisor
from cell.specification import Spec


class ToldNetworks:
    """What the instances are told of their networks, while that is under way."""

    def __init__(self, supervisor: Supervisor) -> None:
        self._supervisor = supervisor
        self._told: list[tuple[HostedInstance, set[str]]] = []

    @contextlib.contextmanager
    def told(self, instance: HostedInstance, spec: Spec) -> Iterator[set[str]]:
        """Which of its domains still are the instance's, with which nobody else is told meanwhile.

        A domain leads to one instance: whoever had it loses it at once. It leads to this one once
        it has a certificate.
        """
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
