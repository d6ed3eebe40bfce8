"""Which uids of a cell something on the machine still belongs to."""

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path

from cell.runtime.process import uid_of

# What an engine that sees the machine's files could leave behind, outside of its own folders.
OPEN_TO_ALL = ("/tmp", "/var/tmp", "/dev/shm", "/dev/mqueue", "/run/lock")  # noqa: S108 - looked at only
SHARED = ("shm", "sem", "msg")


def in_use(uids: range) -> set[int]:
    """Those with a process, shared memory, or something in a folder that everybody may write to."""
    return {uid for uid in (*_of_processes(), *_of_files(), *_of_shared()) if uid in uids}


def _of_processes() -> Iterator[int]:
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and (uid := uid_of(int(entry.name))) is not None:
            yield uid


def _of_files() -> Iterator[int]:
    for folder in OPEN_TO_ALL:
        with contextlib.suppress(OSError), os.scandir(folder) as entries:
            for entry in entries:
                with contextlib.suppress(FileNotFoundError):
                    yield entry.stat(follow_symlinks=False).st_uid


def _of_shared() -> Iterator[int]:
    for kind in SHARED:
        with contextlib.suppress(OSError):
            names, *rows = Path(f"/proc/sysvipc/{kind}").read_text().splitlines()
            for row in rows:
                found = dict(zip(names.split(), row.split(), strict=False))
                yield from (int(found["uid"]), int(found["cuid"]))
