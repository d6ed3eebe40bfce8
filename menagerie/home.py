"""The home as a start finds it: ours with all that is in it, writable, and closed to others."""

import errno
import os
import stat
import tempfile
from collections.abc import Iterator
from pathlib import Path

from cell.layout import MOVED
from menagerie.errors import SettingsError
from menagerie.ownership import require_ours, user

# What a file or folder of ours may not grant. To pass through is not to look around: where
# engines have uids of their own, they pass to their folders.
_OTHERS_READ = 0o066
_PRIVATE_FOLDER = 0o700
_PRIVATE_FILE = 0o600
# Certificates are public, and named so.
_PUBLIC = ".pem"
_OURS = (".", "keys", "cell", "cell/run", "cell/pki", "cell/activity")
# Where the cell itself puts links: to sockets whose path is short, to what engines may enter.
_LINKS = {"cell/outside", "cell/sockets", "cell/run", "cell/run/cell.sock"}
_LINKS.update(f"cell/{name}" for name in MOVED)
_ROOM_BYTES = 1 << 16


def prepare(root: Path) -> None:
    """Make the home, or close one that is there to others, files that lie open included.

    Raises SettingsError with one line where it cannot be used.
    """
    os.umask(0o077)
    try:
        root.mkdir(mode=_PRIVATE_FOLDER, parents=True, exist_ok=True)
        root = root.resolve()  # the home itself may be a link
        _check_owner(root)
        for name in _OURS:
            # In this order: where others cannot write any more, what is found there stays.
            _close(root / name)
            _require_ours(root, name)
        for path in exposed(root):
            _close(path)
        _write(root)
    except OSError as error:
        raise SettingsError(_reason(root, error)) from error


def check(root: Path) -> None:
    """As `prepare`, but leaves all as it is: where no home is, one could be made."""
    try:
        if root.is_dir():
            root = root.resolve()
            _check_owner(root)
            for name in _OURS:
                _require_ours(root, name)
        _write(next(path for path in (root, *root.parents) if path.exists()))
    except OSError as error:
        raise SettingsError(_reason(root, error)) from error


def _close(path: Path) -> None:
    if _is_open(path):
        path.chmod(_PRIVATE_FOLDER if path.is_dir() else _PRIVATE_FILE)


def _require_ours(root: Path, name: str) -> None:
    """What lies in a folder of ours; the sockets' folders in `cell/run` belong to engines."""
    folder = root / name
    if not folder.is_dir() or (name != "." and folder.is_symlink()):
        return
    for path in sorted(folder.iterdir()):
        place = str(path.relative_to(root))
        if name == "cell/run" and path.is_dir():
            continue
        require_ours(path, may_link=place in _LINKS)


def _write(folder: Path) -> None:
    with tempfile.TemporaryFile(dir=folder) as file:
        file.write(bytes(_ROOM_BYTES))
        file.flush()
        os.fsync(file.fileno())


def exposed(root: Path) -> Iterator[Path]:
    """What others could read or write of a home, though it is nobody's but its owner's."""
    for name in _OURS:
        folder = root / name
        if not folder.is_dir() or folder.is_symlink():
            continue
        if name == "." and _is_open(folder):
            yield folder
        for path in sorted(folder.iterdir()):
            if path.suffix != _PUBLIC and _is_open(path):
                yield path


def _is_open(path: Path) -> bool:
    try:
        found = path.lstat()
    except FileNotFoundError:
        return False
    if stat.S_ISLNK(found.st_mode) or found.st_uid != os.geteuid():
        return False
    return bool(found.st_mode & _OTHERS_READ)


def _check_owner(root: Path) -> None:
    owner = root.stat().st_uid
    if owner != os.geteuid():
        raise SettingsError(
            f"the home {root} belongs to {user(owner)} and not to {user(os.geteuid())}: run this "
            f"as {user(owner)}, or choose another home with --home"
        )


def _reason(root: Path, error: OSError) -> str:
    if isinstance(error, FileExistsError | NotADirectoryError):
        blocking = next(path for path in (root, *root.parents) if path.exists())
        return (
            f"the home {root} cannot be created: {blocking} is a file; choose another with --home"
        )
    if error.errno in {errno.ENOSPC, errno.EDQUOT}:
        return (
            f"the disk of the home {root} is full: free some space, or choose another with --home"
        )
    if error.errno == errno.EROFS:
        return f"the home {root} is on a read-only file system; choose another home with --home"
    text = (error.strerror or str(error)).lower()
    return f"the home {root} cannot be written: {text}; choose another home with --home"
