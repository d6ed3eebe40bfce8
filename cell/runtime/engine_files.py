"""What the cell does in folders that belong to an engine's user, where no link is followed.

That user may put there what it likes, and change it at any moment: whatever is done is done by a
name in a folder that is held open, and to what was opened there.
"""

import contextlib
import os
import shutil
from collections.abc import Iterator
from pathlib import Path

HELD = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


def make_folder(top: Path, name: str, owner: int | None) -> None:
    """An empty folder in `top`, which is the engine's, in place of whatever lies there."""
    with _held(top) as parent:
        _remove(name, parent)
        os.mkdir(name, 0o700, dir_fd=parent)
        descriptor = os.open(name, HELD, dir_fd=parent)
        try:
            os.fchmod(descriptor, 0o700)
            if owner is not None:
                os.fchown(descriptor, owner, owner)
        finally:
            os.close(descriptor)


@contextlib.contextmanager
def _held(top: Path) -> Iterator[int]:
    descriptor = os.open(top, HELD)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def _remove(name: str, parent: int) -> None:
    try:
        os.unlink(name, dir_fd=parent)
    except FileNotFoundError:
        return
    except IsADirectoryError:
        shutil.rmtree(name, dir_fd=parent)
