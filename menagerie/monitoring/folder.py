"""The folder in which the processes of one gunicorn keep their figures; new at each start.

It is removed when gunicorn ends. Of one that was killed it stays, and goes at the next start of
any: whoever uses a folder holds a lock on it.
"""

import fcntl
import os
import shutil
import tempfile
import time
from contextlib import suppress
from pathlib import Path
from typing import Final

VARIABLE: Final = "PROMETHEUS_MULTIPROC_DIR"
_PREFIX: Final = "menagerie-metrics-"
_LOCK: Final = ".lock"
_MADE_WITHIN_S: Final = 60.0
"""A folder that is newer may be one whose maker has not locked it yet."""


def make() -> dict[str, str]:
    """The variable that tells the processes of it. Only this user can look into it."""
    _remove_left()
    folder = tempfile.mkdtemp(prefix=_PREFIX)
    # Never closed: the lock goes over to gunicorn and its processes, and ends with the last.
    lock = os.open(Path(folder, _LOCK), os.O_RDWR | os.O_CREAT, 0o600)
    fcntl.flock(lock, fcntl.LOCK_EX)
    os.set_inheritable(lock, True)
    return {VARIABLE: folder}


def remove() -> None:
    folder = os.environ.get(VARIABLE, "")
    if os.path.basename(folder).startswith(_PREFIX):  # noqa: PTH119 -- empty where there is none
        shutil.rmtree(folder, ignore_errors=True)


def is_shared() -> bool:
    """Whether this process is one of several that keep their figures together."""
    return VARIABLE in os.environ


def _remove_left() -> None:
    """Those of this user which nobody holds."""
    for folder in Path(tempfile.gettempdir()).glob(f"{_PREFIX}*"):
        with suppress(OSError):  # somebody else removes it, too
            if _is_left(folder):
                shutil.rmtree(folder, ignore_errors=True)


def _is_left(folder: Path) -> bool:
    about = folder.lstat()
    is_ours = about.st_uid == os.getuid() and folder.is_dir() and not folder.is_symlink()
    if not is_ours or about.st_mtime + _MADE_WITHIN_S > time.time():
        return False
    with suppress(FileNotFoundError):
        lock = os.open(folder / _LOCK, os.O_RDWR | os.O_NOFOLLOW)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        finally:
            os.close(lock)
    return True
