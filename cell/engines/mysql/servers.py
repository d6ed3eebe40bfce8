"""Which servers of the family are installed here: where they lie, what they are, their tools."""

import os
import re
import shutil
import subprocess
from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from cell.runtime.confinement import SYSTEM, Mount

# Debian keeps servers where only root's PATH looks.
FURTHER = ("/usr/sbin", "/usr/local/sbin", "/usr/local/bin", "/usr/bin")
VERSION = re.compile(r"\bVer (\d+)\.(\d+)\.(\d+)(\S*)")
TOOL_VERSION = re.compile(r"\b(\d+)\.(\d+)\.(\d+)(-MariaDB)?")
ASK_TIMEOUT_S = 10.0


@dataclass(frozen=True)
class ServerInstallation:
    """`engine` is what the program says it is, whatever its file is called."""

    engine: str
    number: tuple[int, int, int]
    program: Path

    @property
    def series(self) -> str:
        """What is ordered: patches are not, they are applied."""
        return f"{self.number[0]}.{self.number[1]}"

    @property
    def version(self) -> str:
        return ".".join(map(str, self.number))

    @property
    def base(self) -> Path:
        """The folder it was installed into: /usr, or one of its own."""
        return self.program.parent.parent

    @property
    def is_systems(self) -> bool:
        return any(self.base.is_relative_to(path) for path in SYSTEM)

    @property
    def mounts(self) -> list[Mount]:
        """What a sandbox must show beside the system's folders."""
        return [] if self.is_systems else [Mount(self.base, self.base, writable=False)]

    def library(self, name: str) -> Path | None:
        """A plugin that came with this server."""
        places = ("lib/mysql/plugin", "lib64/mysql/plugin", "lib/plugin", "lib64/plugin")
        paths = (self.base / place / f"{name}.so" for place in places)
        return next((path.resolve() for path in paths if path.is_file()), None)

    def tool(self, *names: str) -> Path | None:
        """A program that came with this server."""
        folders = [self.base / name for name in ("bin", "scripts", "sbin")]
        if self.is_systems:
            folders.append(Path("/usr/bin"))
        found = shutil.which(names[0], path=os.pathsep.join(map(str, folders)))
        if found is None:
            return self.tool(*names[1:]) if names[1:] else None
        return Path(found).resolve()


def read(said: str, program: Path) -> ServerInstallation | None:
    """What a server is by what it says for --version; None where that is of another program."""
    found = VERSION.search(said)
    if found is None:
        return None
    major, minor, patch = (int(found[number]) for number in (1, 2, 3))
    engine = "mariadb" if "mariadb" in found[4].lower() else "mysql"
    return ServerInstallation(engine, (major, minor, patch), program)


def find(names: Iterable[str], folders: Iterable[str] | None = None) -> list[ServerInstallation]:
    """Every server there is under these names, in the order of PATH."""
    if folders is None:
        folders = [*os.environ.get("PATH", "").split(os.pathsep), *FURTHER]
    programs = [
        Path(path).resolve()
        for folder in folders
        for name in names
        if (path := shutil.which(name, path=folder)) is not None
    ]
    found = (_ask(path, path.stat().st_mtime_ns) for path in dict.fromkeys(programs))
    return [server for server in found if server is not None]


def newest_first(servers: Iterable[ServerInstallation]) -> dict[str, ServerInstallation]:
    """By series; of two of one series, the later patch."""
    by_series: dict[str, ServerInstallation] = {}
    for server in sorted(servers, key=lambda each: each.number, reverse=True):
        by_series.setdefault(server.series, server)
    return by_series


def same_release(tool: Path, server: ServerInstallation) -> bool:
    """Whether a tool is of the server's own series: a backup by another may not be readable."""
    found = TOOL_VERSION.search(_said(tool))
    return found is not None and (int(found[1]), int(found[2])) == server.number[:2]


@lru_cache(maxsize=32)
def _ask(program: Path, changed_ns: int) -> ServerInstallation | None:  # noqa: ARG001 - another file is asked anew
    return read(_said(program), program)


def _said(program: Path) -> str:
    words = [str(program), "--no-defaults", "--version"]
    try:
        done = subprocess.run(  # noqa: S603 - a program of the system's
            words, capture_output=True, timeout=ASK_TIMEOUT_S, check=False, text=True
        )
    except (OSError, subprocess.TimeoutExpired, ValueError):
        return ""
    return done.stdout + done.stderr
