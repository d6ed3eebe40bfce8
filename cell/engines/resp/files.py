"""The log of writes on disk: copied, put back, and brought to disk.

A snapshot is always a log: the dump of a running engine becomes the base of one. What an engine
left behind is not trusted to be what it should be; links are not followed.
"""

import contextlib
import hashlib
import os
import re
import stat
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from cell.engines.driver import EngineError, Snapshot
from cell.engines.resp.configuration import CONTINUED, DUMP, LOG, LOG_DIRECTORY, UNTRUSTED
from cell.engines.wal_sources import WalNeed
from cell.layout import Site
from cell.runtime import budget, engine_files
from cell.runtime.engine_files import EnginePath
from cell.runtime.host import Host

MANIFEST = f"{LOG}.manifest"
READ_BYTES = 1 << 20
# What a dump begins with: Valkey's own, since its version 9, has a longer name.
_DUMP = re.compile(rb"(?:REDIS|VALKEY)(\d{3,4})")


def copy_dump(dump: EnginePath, target: Path) -> None:
    target.parent.mkdir(mode=0o700)
    engine_files.copy_file(dump, target)


def copy_base(base: EnginePath, number: int, target: Path, need: WalNeed) -> Snapshot:
    """Of an engine that goes on with the increment of this number, which the copy is named by."""
    target.mkdir(mode=0o700)
    name = f"{LOG}.{number}.base.rdb"
    engine_files.copy_file(base, target / name)
    (target / MANIFEST).write_text(f"file {name} seq {number} type b\n")
    return replace(_sum_up(target), wal=need)


def dump_version(head: bytes) -> str | None:
    found = _DUMP.match(head)
    return None if found is None else f"RDB {int(found[1])}"


def take_dump(file: Path, folder: Path, *, trusted: bool) -> None:
    """A dump from elsewhere becomes the base of a log."""
    folder.mkdir(mode=0o700)
    name = f"{LOG}.1.base.rdb"
    file.rename(folder / name)
    (folder / MANIFEST).write_text(f"file {name} seq 1 type b\n")
    if not trusted:
        (folder / UNTRUSTED).touch(mode=0o600)


def take_log(
    base: Path, logs: Sequence[Path], folder: Path, *, trusted: bool, continued: bool
) -> None:
    """The same with the commands since, in order. All stay where they are, on the same disk."""
    folder.mkdir(mode=0o700)
    os.link(base, folder / f"{LOG}.1.base.rdb")
    for number, path in enumerate(logs, 1):
        os.link(path, folder / f"{LOG}.{number}.incr.aof")
    lines = [f"file {LOG}.1.base.rdb seq 1 type b"]
    lines += [
        f"file {LOG}.{number}.incr.aof seq {number} type i" for number, _ in enumerate(logs, 1)
    ]
    (folder / MANIFEST).write_text("".join(f"{line}\n" for line in lines))
    for mark, is_set in ((UNTRUSTED, not trusted), (CONTINUED, continued)):
        if is_set:
            (folder / mark).touch(mode=0o600)


def marks(data: EnginePath) -> frozenset[str]:
    """Which of UNTRUSTED and CONTINUED there are."""
    names = frozenset(engine_files.names(data / LOG_DIRECTORY))
    return names & {UNTRUSTED, CONTINUED}


def copy_log(data: EnginePath, target: Path) -> Snapshot:
    """The log of an engine that does not run."""
    target.mkdir(mode=0o700)
    for place in log_files(data):
        engine_files.copy_file(place, target / place.name)
    return _sum_up(target)


def restore(host: Host, site: Site, source: Path) -> None:
    clear_leftovers(site.data)
    directory, owner = site.data / LOG_DIRECTORY, host.owner(site)
    engine_files.make_folder(directory, owner)
    for path in sorted(source.iterdir()):
        if path.name.startswith(LOG):
            engine_files.copy_file(path, directory / path.name, owner)


def clear_leftovers(data: EnginePath) -> None:
    """What a server that was killed had not finished."""
    for place in _passing_files(data):
        engine_files.remove(place)


def passing_bytes(data: EnginePath) -> int:
    """What a snapshot and a rewrite of the log write until they are done."""
    found = (engine_files.find(place) for place in _passing_files(data))
    return sum(each.st_size for each in found if each is not None)


def _passing_files(data: EnginePath) -> Iterator[EnginePath]:
    for folder in (data, data / LOG_DIRECTORY):
        for name in engine_files.names(folder):
            if name.startswith("temp-"):
                yield folder / name
    yield data / DUMP


def flush(data: EnginePath) -> None:
    """Brings to disk what the engine has written so far."""
    directory = data / LOG_DIRECTORY
    for name in engine_files.names(directory):
        # Replaced by a rewrite meanwhile, or never ours.
        with contextlib.suppress(OSError), engine_files.opened(directory / name) as descriptor:
            os.fdatasync(descriptor)


def log_files(data: EnginePath) -> list[EnginePath]:
    directory = data / LOG_DIRECTORY
    found = engine_files.find(directory)
    if found is not None and not stat.S_ISDIR(found.st_mode):
        raise EngineError("the path of its append-only log is not a folder")
    return [directory / name for name in engine_files.names(directory) if name.startswith(LOG)]


def _sum_up(target: Path) -> Snapshot:
    digest = hashlib.sha256()
    size = 0
    for path in sorted(target.iterdir()):
        with path.open("rb") as file:
            while block := file.read(READ_BYTES):
                budget.go_on()
                digest.update(block)
                size += len(block)
    return Snapshot(size, digest.hexdigest())
