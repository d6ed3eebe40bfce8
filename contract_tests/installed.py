"""Which engines this machine lacks the server for, found out without asking the product."""

import re
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Final

Version = tuple[int, ...]


@dataclass(frozen=True)
class Server:
    """A program of the system's. All other engines come as packages of requirements.lock."""

    program: str
    # Of what it says of itself: some systems give one product's name to another's program.
    told: re.Pattern[str]
    oldest: Version
    below: Version | None = None

    @property
    def wanted(self) -> str:
        oldest = ".".join(map(str, self.oldest))
        below = f" and older than {self.below[0]}" if self.below else ""
        return f"no {self.program} of version {oldest} or newer{below} is installed"

    def is_installed(self) -> bool:
        found = shutil.which(self.program)
        if found is None:
            return False
        done = subprocess.run([found, "--version"], capture_output=True, text=True, check=False)
        told = self.told.search(done.stdout)
        if told is None:
            return False
        version = tuple(int(each) for each in told[1].split("."))
        return version >= self.oldest and (self.below is None or version < self.below)


SERVERS: Final = {
    "mariadb": Server("mariadbd", re.compile(r"Ver ([\d.]+)-MariaDB"), (10, 7)),
    "mysql": Server("mysqld", re.compile(r"Ver ([\d.]+)(?![\d.]|-MariaDB)"), (8, 0, 16), (9,)),
    "redis": Server("redis-server", re.compile(r"Redis server v=([\d.]+)"), (7, 0)),
}
# An engine that is an extension of another: by the file that PostgreSQL finds it by.
EXTENSIONS: Final = {"timescaledb": "*/extension/timescaledb.control"}
POSTGRESQL: Final = Path("/usr/share/postgresql")


def lacking(engine: str) -> str | None:
    """Why the engine cannot run on this machine; None where it must."""
    if engine in EXTENSIONS and not any(POSTGRESQL.glob(EXTENSIONS[engine])):
        return f"no extension {engine} is installed"
    server = SERVERS.get(engine)
    return None if server is None or server.is_installed() else server.wanted
