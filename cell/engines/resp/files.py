"""The log of writes on disk: copied, put back, and brought to disk.

A snapshot is always a log: the dump of a running engine becomes the base of one. What an engine
left behind is not trusted to be what it should be; links are not followed.
"""

import contextlib
import hashlib
import os
import shutil
import stat
from collections.abc import Iterable
from pathlib import Path

from cell.engines.driver import EngineError, Snapshot
from cell.engines.resp.configuration import DUMP, LOG, LOG_DIRECTORY
from cell.layout import Site
from cell.runtime.host import Host, copy_file

BASE = f"{LOG}.1.base.rdb"
MANIFEST = f"{LOG}.manifest"
READ_BYTES = 1 << 20


def copy_dump(dump: Path, target: Path) -> Snapshot:
    target.mkdir(mode=0o700)
    copy_file(dump, target / BASE)
    (target / MANIFEST).write_text(f"file {BASE} seq 1 type b\n")
    return _sum_up(target)


def copy_log(data: Path, target: Path) -> Snapshot:
    """The log of an engine that does not run."""
    target.mkdir(mode=0o700)
    for path in log_files(data):
        copy_file(path, target / path.name)
    return _sum_up(target)


def restore(host: Host, site: Site, source: Path) -> None:
    _remove(site.data / LOG_DIRECTORY)
    clear_leftovers(site.data)
    directory = site.data / LOG_DIRECTORY
    directory.mkdir(mode=0o700)
    for path in _log_files(source):
        copy_file(path, directory / path.name)
        host.own(site, directory / path.name)
    host.own(site, directory)


def clear_leftovers(data: Path) -> None:
    """What a server that was killed had not finished."""
    for folder in (data, data / LOG_DIRECTORY):
        if _is_folder(folder):
            for path in folder.glob("temp-*"):
                _remove(path)
    _remove(data / DUMP)


def flush(data: Path) -> None:
    """Brings to disk what the engine has written so far."""
    with contextlib.suppress(FileNotFoundError, NotADirectoryError):
        for path in sorted((data / LOG_DIRECTORY).iterdir()):
            # Replaced by a rewrite meanwhile, or never ours.
            with contextlib.suppress(OSError):
                descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
                try:
                    os.fdatasync(descriptor)
                finally:
                    os.close(descriptor)


def log_files(data: Path) -> list[Path]:
    return list(_log_files(data / LOG_DIRECTORY))


def _log_files(directory: Path) -> Iterable[Path]:
    if not os.path.lexists(directory):
        return []
    if not _is_folder(directory):
        raise EngineError("the path of its append-only log is not a folder")
    return sorted(path for path in directory.iterdir() if path.name.startswith(LOG))


def _is_folder(path: Path) -> bool:
    try:
        return stat.S_ISDIR(path.lstat().st_mode)
    except FileNotFoundError:
        return False


def _remove(path: Path) -> None:
    if _is_folder(path):
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


def _sum_up(target: Path) -> Snapshot:
    digest = hashlib.sha256()
    size = 0
    for path in sorted(target.iterdir()):
        with path.open("rb") as file:
            while block := file.read(READ_BYTES):
                digest.update(block)
                size += len(block)
    return Snapshot(size, digest.hexdigest())
