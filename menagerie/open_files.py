"""How many files and connections a process may have open, and what its bounds are by that."""

from typing import Final

from cell.runtime import open_files
from cell.runtime.open_files import LEAST, REMEDY, limits
from menagerie.errors import SettingsError

__all__ = ["LEAST", "REMEDY", "connections", "limits", "raise_limit", "relayed"]

CONNECTIONS_MAX: Final = 10_000
"""Of one API process; what more there are would wait for its threads."""
RESERVED: Final = 256
"""For the database, logs, listening sockets and what Python opens."""
RELAYED_MAX: Final = 8_000
"""Of one process of the gateway; each has a client's and an engine's end."""


def raise_limit() -> int:
    """What is in force then; SettingsError where a part could serve next to nobody."""
    try:
        return open_files.raise_limit()
    except open_files.TooFewError as error:
        raise SettingsError(str(error)) from error


def connections(files: int, threads: int) -> int:
    """What an API process takes; each thread may have a connection to the database."""
    return min(CONNECTIONS_MAX, files - RESERVED - 2 * threads)


def relayed(files: int) -> int:
    """What a process of the gateway takes."""
    return min(RELAYED_MAX, (files - RESERVED) // 2)
