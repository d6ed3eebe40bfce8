"""The file that is sent for a migration, part by part, in the folder of its instance."""

import os
import re
import shutil
from pathlib import Path
from typing import NamedTuple

from cell.instances.hosted import HostedInstance
from cell.migrations.record import Migration
from cell.runtime import engine_files
from cell.timestamps import moment
from specserver import Conflict, Invalid, Problem, Unavailable

FOLDER = "migration"
FILE = "upload"
PART_BYTES_MAX = 8 * 2**20
# Left to all others on the disk.
SPARE_BYTES = 256 * 2**20
_RANGE = re.compile(r"bytes (\d{1,15})-(\d{1,15})/(\d{1,15})")


class FilePart(NamedTuple):
    begins_at: int
    total_bytes: int


def folder(instance: HostedInstance) -> Path:
    """Of the cell's, and of one migration at a time."""
    return instance.site.directory / FOLDER


def part_of(content_range: str | None, size_bytes: int) -> FilePart:
    """What a request says that it brings. Raises Invalid."""
    if content_range is None:
        return FilePart(0, size_bytes)
    found = _RANGE.fullmatch(content_range)
    if found is None:
        raise Invalid("Content-Range: must be like bytes 0-8388607/20000000")
    first, last, total = map(int, found.groups())
    if last < first or last >= total or last - first + 1 != size_bytes:
        raise Invalid("Content-Range: does not fit the length of the body")
    return FilePart(first, total)


def check(migration: Migration, part: FilePart, bytes_max: int) -> None:
    """Raises a problem where the part is not the next one, or there is no room for the file."""
    if part.total_bytes > bytes_max:
        raise Problem(
            413,
            f"the file has {part.total_bytes} bytes, and the storage of the instance is "
            f"{bytes_max}; choose more storage or a larger size, or send a smaller file",
        )
    if part.total_bytes == 0:
        raise Invalid("the file is empty")
    if part.begins_at == 0:
        return
    wanted, total = migration.received_bytes, migration.total_bytes
    if part.begins_at != wanted or part.total_bytes != total:
        raise Conflict(
            f"the part begins at byte {part.begins_at} of {part.total_bytes}, but the next one "
            f"begins at byte {wanted} of {total}; ask with GET where to go on",
            code="wrong_offset",
        )


def write(instance: HostedInstance, begins_at: int, content: bytes) -> None:
    """In a thread. What a part that was broken off left behind it is written over."""
    place = folder(instance)
    place.mkdir(mode=0o750, exist_ok=True)
    flags = os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW | (0 if begins_at else os.O_TRUNC)
    descriptor = os.open(place / FILE, flags, 0o600)
    try:
        os.ftruncate(descriptor, begins_at)
        os.lseek(descriptor, begins_at, os.SEEK_SET)
        left = memoryview(content)
        while left:
            left = left[os.write(descriptor, left) :]
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def lend(path: Path, owner: int | None) -> None:
    """Lets the tools of an instance read a file or a folder, which only the cell can change."""
    if owner is not None and os.geteuid() == 0:
        os.chown(path, 0, owner, follow_symlinks=False)
    path.chmod(0o750 if path.is_dir() else 0o640)


def remove(instance: HostedInstance) -> None:
    """In a thread: all that a migration left there."""
    engine_files.remove(folder(instance))


def told(migration: Migration) -> dict[str, object]:
    """What has arrived."""
    return {
        "migration_id": migration.migration_id,
        "kind": migration.kind,
        "received_bytes": migration.received_bytes,
        "total_bytes": migration.total_bytes,
        "received_at": moment(migration.received_at),
        "part_bytes_max": PART_BYTES_MAX,
    }


def check_disk(instance: HostedInstance, left_bytes: int) -> None:
    """Raises Unavailable where the disk that all instances share has no room for the rest."""
    if shutil.disk_usage(instance.site.directory).free < left_bytes + SPARE_BYTES:
        raise Unavailable("the cell's disk has no room for the file", headers={"Retry-After": "60"})
