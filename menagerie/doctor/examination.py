"""All checks in order; one that breaks is a finding too."""

from collections.abc import Callable, Iterator
from functools import partial

from menagerie.doctor import installation, machine
from menagerie.doctor.findings import Finding
from menagerie.settings import Settings


def examine(settings: Settings) -> list[Finding]:
    checks: dict[str, Callable[[], Iterator[Finding]]] = {
        "python": machine.python,
        "open files": machine.files,
        "engines": machine.confinement_and_engines,
        "home": partial(installation.of_home, settings),
        "disk": partial(installation.of_disk, settings),
        "database": partial(installation.of_database, settings),
        "backup stores": partial(installation.of_stores, settings),
        "installation backup": partial(installation.of_backup, settings),
        "ports": partial(installation.of_ports, settings),
        "names": partial(machine.names, settings),
        "clock": machine.clock,
        "service": partial(installation.of_service, settings),
    }
    found: list[Finding] = []
    for name, check in checks.items():
        try:
            found.extend(check())
        except Exception as error:  # noqa: BLE001 -- the other checks are still worth having
            detail = f"could not be checked: {type(error).__name__}: {error}"
            found.append(Finding(name, "failure", detail))
    return found
