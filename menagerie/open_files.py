"""How many files and connections a process may have open, and what its bounds are by that."""

import resource
from typing import Final

from menagerie.settings import SettingsError

FILES: Final = resource.RLIMIT_NOFILE
MOST: Final = 65_536
LEAST: Final = 1_024
REMEDY: Final = "ulimit -n 65536, or LimitNOFILE=65536 where systemd starts it"
CONNECTIONS_MAX: Final = 10_000
"""Of one API process; what more there are would wait for its threads."""
RESERVED: Final = 256
"""For the database, logs, listening sockets and what Python opens."""
RELAYED_MAX: Final = 8_000
"""Of one process of the gateway; each has a client's and an engine's end."""


def raise_limit() -> int:
    """Raise this process's soft limit to its hard one; answer what is in force.

    Raises SettingsError where a part could serve next to nobody.
    """
    soft, hard = limits()
    if soft < min(hard, MOST):
        soft = min(hard, MOST)
        resource.setrlimit(FILES, (soft, resource.getrlimit(FILES)[1]))
    if soft < LEAST:
        raise SettingsError(
            f"this process may open {soft} files, and at least {LEAST} are needed: {REMEDY}"
        )
    return soft


def limits() -> tuple[int, int]:
    """Soft and hard; without a limit the most that is made use of."""
    soft, hard = (
        MOST if each == resource.RLIM_INFINITY else each for each in resource.getrlimit(FILES)
    )
    return soft, hard


def connections(files: int, threads: int) -> int:
    """What an API process takes; each thread may have a connection to the database."""
    return min(CONNECTIONS_MAX, files - RESERVED - 2 * threads)


def relayed(files: int) -> int:
    """What a process of the gateway takes."""
    return min(RELAYED_MAX, (files - RESERVED) // 2)
