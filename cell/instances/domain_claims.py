"""Custom domains lead to one instance each: to the one that the control plane told of last."""

import contextlib
from collections.abc import Iterator

from cell.instances.supervisor import Supervisor
from cell.specification import Spec


class DomainClaims:
    """What the instances are told of their domains, while that is under way."""

    def __init__(self, supervisor: Supervisor) -> None:
        self._supervisor = supervisor
        self._told: list[set[str]] = []

    @contextlib.contextmanager
    def told(self, instance_id: str, spec: Spec) -> Iterator[set[str]]:
        """Which of its domains still are the instance's, with which nobody else is told meanwhile.

        Whoever had them loses them at once. An upgrade may take hours, during which the control
        plane does not get through to an instance that a domain has left.
        """
        domains = set(spec.domains)
        for former in self._told:
            former.difference_update(domains)
        for other in self._supervisor.instances.values():
            own = other.record.spec
            if other.instance_id != instance_id and domains.intersection(own.domains):
                other.lose_domains(domains)
                self._supervisor.save(other)
        self._told.append(domains)
        try:
            yield domains
        finally:
            self._told = [each for each in self._told if each is not domains]
