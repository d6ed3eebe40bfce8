"""What the cell does in folders that belong to an engine's user, where no link is followed.

That user may put there what it likes, and change it at any moment: whatever is done is done by a
name in a folder that is held open, and to what was opened there. Nothing is waited for, either.
"""

import contextlib
import errno
import os
import secrets
import stat
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from cell.runtime import budget

FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
# A pipe is not waited for.
FILE = os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
# Something else than it was a moment ago: gone, or a link, a pipe, a socket.
OTHER = {errno.ENOENT, errno.ENOTDIR, errno.ELOOP, errno.ENXIO}
# No engine has a tenth of it; each level takes a descriptor.
DEPTH_MAX = 64
# Of a folder in which work that was broken off is just making its last file.
EMPTIED_MAX = 100


class TooDeepError(OSError):
    """More folders inside each other than any engine makes."""


@dataclass(frozen=True)
class EnginePath:
    """A place in `top`, a folder of an engine's that lies in one of the cell's.

    No path, so that no function of the system's takes it for one.
    """

    top: Path
    parts: tuple[str, ...] = ()

    def __truediv__(self, name: str | PurePosixPath) -> "EnginePath":
        further = PurePosixPath(name).parts
        if ".." in further or PurePosixPath(name).is_absolute():
            raise ValueError("leads outside of the folder")
        return EnginePath(self.top, (*self.parts, *further))

    def __str__(self) -> str:
        """For programs, and for `gateway.sockets`, which follows no link either."""
        return str(self.outside)

    @property
    def name(self) -> str:
        return self.parts[-1] if self.parts else self.top.name

    @property
    def outside(self) -> Path:
        """The path; a habit test counts who takes it."""
        return self.top.joinpath(*self.parts)


Place = EnginePath | Path
"""The latter in folders that are the cell's."""


@contextlib.contextmanager
def held(place: Place) -> Iterator[int]:
    """A folder's descriptor. Raises OSError where there is none, or something else in the way."""
    place = place if isinstance(place, EnginePath) else EnginePath(place)
    descriptor = os.open(place.top, FOLDER)
    try:
        for part in place.parts:
            inner = os.open(part, FOLDER, dir_fd=descriptor)
            os.close(descriptor)
            descriptor = inner
        yield descriptor
    finally:
        os.close(descriptor)


@contextlib.contextmanager
def parent_of(place: Place) -> Iterator[tuple[int, str]]:
    """The folder it lies in, and its name there."""
    if isinstance(place, EnginePath) and place.parts:
        with held(EnginePath(place.top, place.parts[:-1])) as descriptor:
            yield descriptor, place.name
        return
    path = place.top if isinstance(place, EnginePath) else place
    descriptor = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        yield descriptor, path.name
    finally:
        os.close(descriptor)


def find(place: Place) -> os.stat_result | None:
    """What lies there itself, be it a link."""
    try:
        with parent_of(place) as (folder, name):
            return os.stat(name, dir_fd=folder, follow_symlinks=False)
    except (FileNotFoundError, NotADirectoryError):
        return None


def names(place: Place) -> list[str]:
    """What lies in a folder, in order; nothing where it is none."""
    try:
        with held(place) as descriptor:
            return sorted(_all(descriptor))
    except OSError as error:
        if error.errno not in OTHER:
            raise
        return []


@contextlib.contextmanager
def opened(place: Place, flags: int = os.O_RDONLY) -> Iterator[int]:
    """An ordinary file of the engine's own; OSError where there is something else."""
    with parent_of(place) as (folder, name):
        descriptor = open_file(name, folder, flags)
    if descriptor is None:
        raise OSError(errno.EINVAL, "is not a regular file", place.name)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def open_file(name: str, folder: int, flags: int = os.O_RDONLY) -> int | None:
    """None where it is no ordinary file, or not any more."""
    try:
        descriptor = os.open(name, flags | FILE, dir_fd=folder)
    except OSError as error:
        if error.errno in OTHER:
            return None
        raise
    if _is_own(descriptor, folder):
        return descriptor
    os.close(descriptor)
    return None


def read(place: Place, most: int, *, end: bool = False) -> bytes:
    """The beginning, or the end, of a file; empty where it is none."""
    with contextlib.suppress(OSError), opened(place) as descriptor:
        if end:
            os.lseek(descriptor, max(0, os.fstat(descriptor).st_size - most), os.SEEK_SET)
        return os.read(descriptor, most)
    return b""


Listing = tuple[list[str], list[str]]
"""Names of folders, and of all else."""


def listed(descriptor: int) -> Listing:
    """What lies in a folder that is held."""
    folders: list[str] = []
    files: list[str] = []
    with os.scandir(descriptor) as entries:
        for entry in entries:
            (folders if entry.is_dir(follow_symlinks=False) else files).append(entry.name)
    return sorted(folders), sorted(files)


def walk(
    place: Place, listed: Callable[[int], Listing] = listed
) -> Iterator[tuple[PurePosixPath, list[str], list[str], int]]:
    """As os.fwalk from the top: paths are from `place` on. TooDeepError where it has no end.

    Whoever knows what lies in a folder passes a `listed` of its own.
    """
    with held(place) as descriptor:
        yield from _walk(descriptor, PurePosixPath(), 0, listed)


def _walk(
    descriptor: int, here: PurePosixPath, depth: int, listed: Callable[[int], Listing]
) -> Iterator[tuple[PurePosixPath, list[str], list[str], int]]:
    folders, files = listed(descriptor)
    yield here, folders, files, descriptor
    for name in folders:
        with _inner(name, descriptor, depth) as inner:
            if inner is not None:
                yield from _walk(inner, here / name, depth + 1, listed)


@contextlib.contextmanager
def _inner(name: str, folder: int, depth: int) -> Iterator[int | None]:
    """None where it is no folder any more."""
    if depth == DEPTH_MAX:
        raise TooDeepError(errno.ENAMETOOLONG, f"there are more than {DEPTH_MAX} levels of folders")
    try:
        descriptor = os.open(name, FOLDER, dir_fd=folder)
    except OSError as error:
        if error.errno not in OTHER:
            raise
        yield None
        return
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def _all(descriptor: int) -> list[str]:
    folders, files = listed(descriptor)
    return [*folders, *files]


def remove(place: Place) -> None:
    """Whatever lies there, if anything does."""
    with contextlib.suppress(FileNotFoundError), parent_of(place) as (folder, name):
        remove_in(folder, name)


def empty(place: Place) -> None:
    with held(place) as folder:
        for name in _all(folder):
            remove_in(folder, name)


def remove_in(folder: int, name: str) -> None:
    left = [name]
    while left:
        _remove(left.pop(), folder, 0, (folder, left))


def _remove(name: str, folder: int, depth: int, top: tuple[int, list[str]]) -> None:
    """What is too deep comes to the top, and has its turn."""
    try:
        os.unlink(name, dir_fd=folder)
    except FileNotFoundError:
        return
    except IsADirectoryError:
        pass
    else:
        return
    if depth == DEPTH_MAX:
        aside = f".removing-{secrets.token_hex(8)}"
        os.rename(name, aside, src_dir_fd=folder, dst_dir_fd=top[0])
        top[1].append(aside)
        return
    with _inner(name, folder, 0) as inner:
        for left in reversed(range(EMPTIED_MAX)):
            for each in () if inner is None else _all(inner):
                _remove(each, inner or folder, depth + 1, top)
            if _is_removed(name, folder, last_try=not left):
                return


def _is_removed(name: str, folder: int, *, last_try: bool) -> bool:
    """Not where something has come into it since it was emptied."""
    try:
        os.rmdir(name, dir_fd=folder)
    except OSError as error:
        if error.errno != errno.ENOTEMPTY or last_try:
            raise
        return False
    return True


def make_folder(place: Place, owner: int | None = None) -> None:
    """An empty one, in place of whatever lies there."""
    with parent_of(place) as (folder, name):
        remove_in(folder, name)
        os.close(_made(folder, name, owner))


def make_file(place: Place, owner: int | None = None, content: bytes = b"") -> None:
    """A new one, in place of whatever lies there."""
    with parent_of(place) as (folder, name):
        remove_in(folder, name)
        with os.fdopen(create(name, folder, owner), "wb") as file:
            file.write(content)


def create(name: str, folder: int, owner: int | None = None) -> int:
    """The descriptor of a new file, to write to."""
    descriptor = os.open(name, NEW, 0o600, dir_fd=folder)
    os.fchmod(descriptor, 0o600)
    if owner is not None:
        os.fchown(descriptor, owner, owner)
    return descriptor


def _made(folder: int, name: str, owner: int | None) -> int:
    """The descriptor of a new folder."""
    os.mkdir(name, 0o700, dir_fd=folder)
    descriptor = os.open(name, FOLDER, dir_fd=folder)
    os.fchmod(descriptor, 0o700)
    if owner is not None:
        os.fchown(descriptor, owner, owner)
    return descriptor


def rename(place: Place, target: Place) -> None:
    with parent_of(place) as (source, name), parent_of(target) as (folder, to):
        os.rename(name, to, src_dir_fd=source, dst_dir_fd=folder)


def give(place: Place, owner: int) -> None:
    """A folder with all its folders and files; what else lies there is of no use to anybody."""
    for _, _, files, folder in walk(place):
        for name in files:
            give_file(name, folder, owner)
        os.fchown(folder, owner, owner)


def give_file(name: str, folder: int, owner: int | None, *, sync: bool = False) -> None:
    if (descriptor := open_file(name, folder)) is None:
        return
    try:
        if owner is not None:
            os.fchown(descriptor, owner, owner)
        if sync:
            os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _is_own(descriptor: int, folder: int) -> bool:
    """Not a second name of somebody else's file."""
    found = os.fstat(descriptor)
    if not stat.S_ISREG(found.st_mode):
        return False
    return found.st_nlink == 1 or found.st_uid == os.fstat(folder).st_uid


def copy_file(source: Place, target: Place, owner: int | None = None) -> None:
    """To a new file, which is on disk then. OSError where the source is no ordinary one."""
    with opened(source) as reading, parent_of(target) as (folder, name):
        writing = create(name, folder, owner)
        try:
            _copy_content(os.dup(reading), os.dup(writing))
            os.fsync(writing)
        finally:
            os.close(writing)


def _copy_content(source: int, target: int) -> None:
    with os.fdopen(source, "rb") as reading, os.fdopen(target, "wb") as writing:
        budget.copy(reading, writing)


def copy_tree(
    source: Place,
    target: Place,
    leave: Callable[[PurePosixPath], bool] = lambda _: False,
    owner: int | None = None,
) -> None:
    """Into the folder `target`: folders and ordinary files, and of those not what to `leave`."""
    with held(source) as reading, held(target) as writing:
        _copy(reading, writing, PurePosixPath(), leave, owner)


def _copy(
    source: int,
    target: int,
    here: PurePosixPath,
    leave: Callable[[PurePosixPath], bool],
    owner: int | None,
) -> None:
    folders, files = listed(source)
    for name in files:
        if not leave(here / name) and (reading := open_file(name, source)) is not None:
            try:
                writing = create(name, target, owner)
            except BaseException:
                os.close(reading)
                raise
            _copy_content(reading, writing)
    for name in folders:
        with _inner(name, source, len(here.parts)) as inner:
            if inner is not None:
                made = _made(target, name, owner)
                try:
                    _copy(inner, made, here / name, leave, owner)
                finally:
                    os.close(made)
