"""Folders of data: copied without following links, brought to disk, and put in place whole."""

import hashlib
import os
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

from cell.engines.driver import Snapshot
from cell.runtime import budget, engine_files
from cell.runtime.engine_files import EnginePath, Place

READ_BYTES = 1 << 20
# Each waits for the disk and not for a processor.
SYNCING = 16


def copy(source: Place, target: Place, leave: tuple[str, ...] = ()) -> None:
    """Copies folders and ordinary files into the new folder `target`; nothing else.

    `leave` are beginnings of names at the top. It is not on disk before `settle`.
    """
    engine_files.make_folder(target)
    engine_files.copy_tree(
        source, target, lambda path: len(path.parts) == 1 and path.name.startswith(leave)
    )


def settle(target: Place, owner: int | None = None) -> None:
    """Everything below is on disk, and belongs to `owner` where there is one."""
    with ThreadPoolExecutor(SYNCING) as threads:
        for _, _, names, folder in engine_files.walk(target):
            done = threads.map(
                partial(engine_files.give_file, folder=folder, owner=owner, sync=True), names
            )
            for _ in done:
                pass
            if owner is not None:
                os.fchown(folder, owner, owner)
            os.fsync(folder)


def replace(new: EnginePath, place: EnginePath) -> None:
    """Puts the folder `new`, a neighbour, where another was; that one goes."""
    put_back(place)
    old = _old(place)
    engine_files.remove(old)
    if engine_files.find(place) is not None:
        engine_files.rename(place, old)
    try:
        engine_files.rename(new, place)
    except OSError:
        put_back(place)
        raise
    with engine_files.held(_folder(place)) as descriptor:
        os.fsync(descriptor)
    engine_files.remove(old)


def put_back(place: EnginePath) -> None:
    """What lay there, where a replacement did not come to its end: it may be the only data."""
    old = _old(place)
    if engine_files.find(place) is None and engine_files.find(old) is not None:
        engine_files.rename(old, place)
        with engine_files.held(_folder(place)) as descriptor:
            os.fsync(descriptor)


def _folder(place: EnginePath) -> EnginePath:
    return EnginePath(place.top, place.parts[:-1])


def _old(place: EnginePath) -> EnginePath:
    return _folder(place) / f"{place.name}.old"


def measure(folder: Path) -> Snapshot:
    """Over the name and the content of each file, in order of name."""
    digest = hashlib.sha256()
    size = 0
    for path in _files(folder):
        digest.update(f"{path.relative_to(folder)}\0{path.stat().st_size}\0".encode())
        size += path.stat().st_size
        with path.open("rb") as file:
            while block := file.read(READ_BYTES):
                budget.go_on()
                digest.update(block)
    return Snapshot(size, digest.hexdigest())


def _files(folder: Path) -> Iterator[Path]:
    return iter(sorted(path for path in folder.rglob("*") if path.is_file()))
