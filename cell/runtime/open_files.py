"""How many files a part may have open: as many as the system lets it, up to what is made use of."""

import resource
from typing import Final

FILES: Final = resource.RLIMIT_NOFILE
MOST: Final = 65_536
LEAST: Final = 1_024
REMEDY: Final = "ulimit -n 65536, or LimitNOFILE=65536 where systemd starts it"


class TooFewError(Exception):
    """A part could serve next to nobody."""


def raise_limit() -> int:
    """Raise this process's soft limit to its hard one; answer what is in force, or TooFewError."""
    soft, hard = limits()
    if soft < min(hard, MOST):
        soft = min(hard, MOST)
        resource.setrlimit(FILES, (soft, resource.getrlimit(FILES)[1]))
    if soft < LEAST:
        raise TooFewError(
            f"this process may open {soft} files, and at least {LEAST} are needed: {REMEDY}"
        )
    return soft


def limits() -> tuple[int, int]:
    """Soft and hard; without a limit the most that is made use of."""
    soft, hard = (
        MOST if each == resource.RLIM_INFINITY else each for each in resource.getrlimit(FILES)
    )
    return soft, hard
