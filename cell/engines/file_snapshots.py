"""Owns snapshots that are the engine's files themselves, copied while nobody writes to them."""

import hashlib
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Final

from cell.engines.driver import EngineError, Snapshot
from cell.layout import Site
from cell.runtime import budget, engine_files, pace
from cell.runtime.engine_files import EnginePath, Place
from cell.runtime.host import Host
from cell.runtime.process import Process

Files = Callable[[Place], list[str]]
"""The names of those in a folder that a snapshot is of."""

_READ_BYTES: Final = 1 << 20


def copy_held(process: Process, files: Files, data: EnginePath, target: Path) -> Snapshot:
    """Of a process that runs, which is held still meanwhile. Raises EngineError if it is not."""
    with pace.without_rests(), process.held_still() as is_still:
        if not is_still:
            raise EngineError("the engine could not be held still for a backup; try again")
        return copy(files, data, target)


def copy(files: Files, data: EnginePath, target: Path) -> Snapshot:
    """Into `target`, which is made."""
    target.mkdir(mode=0o700)
    digest = hashlib.sha256()
    size = 0
    for name in files(data):
        engine_files.copy_file(data / name, target / name)
        with (target / name).open("rb") as file:
            while block := file.read(_READ_BYTES):
                budget.go_on()
                digest.update(block)
                size += len(block)
    return Snapshot(size, digest.hexdigest())


def restore(
    host: Host, site: Site, source: Path, files: Files, derived: Iterable[str] = ()
) -> None:
    """In place of those that are there, and of what was made of them."""
    for name in [*files(site.data), *derived]:
        engine_files.remove(site.data / name)
    for name in files(source):
        engine_files.copy_file(source / name, site.data / name, host.owner(site))
