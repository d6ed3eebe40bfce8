"""Folders of data: copied without following links, brought to disk, and put in place whole."""

import contextlib
import hashlib
import os
import shutil
import stat
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from cell.engines.driver import Snapshot
from cell.layout import sync_folder
from cell.runtime import budget

READ_BYTES = 1 << 20
# Each waits for the disk and not for a processor.
SYNCING = 16


def copy(source: Path, target: Path, leave: tuple[str, ...] = ()) -> None:
    """Copies folders and ordinary files into the new folder `target`; nothing else.

    What an engine put there instead, links above all, is not followed and not copied; `leave` are
    beginnings of names at the top. It is not on disk before `settle`.
    """
    target.mkdir(mode=0o700)
    for folder, folders, names, descriptor in os.fwalk(source, follow_symlinks=False):
        below = target / Path(folder).relative_to(source)
        top = below == target
        folders[:] = sorted(name for name in folders if _is_folder(name, descriptor))
        for name in folders:
            (below / name).mkdir(mode=0o700)
        for name in names:
            if not (top and name.startswith(leave)):
                _copy_file(name, descriptor, below / name)


def settle(target: Path, owner: int | None = None) -> None:
    """Everything below is on disk, and belongs to `owner` where there is one."""
    with ThreadPoolExecutor(SYNCING) as threads:
        for _ in threads.map(lambda path: _settle(path, owner), [target, *target.rglob("*")]):
            pass


def replace(new: Path, place: Path) -> None:
    """Puts the folder `new`, a neighbour, where another was; that one goes."""
    old = place.with_name(f"{place.name}.old")
    remove(old)
    if place.exists():
        place.rename(old)
    new.rename(place)
    sync_folder(place.parent)
    remove(old)


def remove(path: Path) -> None:
    if path.is_symlink() or path.is_file():
        path.unlink()
    elif path.exists():
        shutil.rmtree(path)


def drop(folder: Path, name: str) -> None:
    """Removes a file; a link that is there in the folder's place is not followed."""
    with contextlib.suppress(FileNotFoundError, NotADirectoryError):
        descriptor = os.open(folder, os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW)
        try:
            os.unlink(name, dir_fd=descriptor)
        finally:
            os.close(descriptor)


def measure(folder: Path) -> Snapshot:
    """Over the name and the content of each file, in order of name."""
    digest = hashlib.sha256()
    size = 0
    for path in _files(folder):
        digest.update(f"{path.relative_to(folder)}\0{path.stat().st_size}\0".encode())
        size += path.stat().st_size
        with path.open("rb") as file:
            while block := file.read(READ_BYTES):
                digest.update(block)
    return Snapshot(size, digest.hexdigest())


def _files(folder: Path) -> Iterator[Path]:
    return iter(sorted(path for path in folder.rglob("*") if path.is_file()))


def _is_folder(name: str, parent: int) -> bool:
    return stat.S_ISDIR(os.stat(name, dir_fd=parent, follow_symlinks=False).st_mode)


def _copy_file(name: str, parent: int, target: Path) -> None:
    try:
        # A link is refused by the system, a pipe is not waited for.
        flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK
        descriptor = os.open(name, flags, dir_fd=parent)
    except OSError:
        if stat.S_ISREG(os.stat(name, dir_fd=parent, follow_symlinks=False).st_mode):
            raise
        return
    with os.fdopen(descriptor, "rb") as reading:
        if stat.S_ISREG(os.fstat(descriptor).st_mode):
            with target.open("xb") as writing:
                os.fchmod(writing.fileno(), 0o600)
                budget.copy(reading, writing)


def _settle(path: Path, owner: int | None) -> None:
    if owner is not None:
        os.chown(path, owner, owner, follow_symlinks=False)
    if not path.is_symlink():
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
