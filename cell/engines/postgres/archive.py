"""A cluster's files in one file: a snapshot, or the template that new instances are made from."""

import contextlib
import ctypes
import hashlib
import io
import os
import stat
import tarfile
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path, PurePosixPath
from types import TracebackType
from typing import IO, Self, cast

from cell.engines.driver import EngineError, Snapshot
from cell.runtime import budget

NAME = "cluster.tar"
BUFFER_BYTES = 1 << 20
SEND_BYTES = 1 << 26
# Of a server that runs or ran, and of no use to another.
PASSING = frozenset({"postmaster.pid", "postmaster.opts", "pg_internal.init"})
TEMPORARY = "pgsql_tmp"
_LIBC = ctypes.CDLL(None, use_errno=True)


class _Hashing:
    """Counts and hashes what is written to a file."""

    def __init__(self, file: IO[bytes]) -> None:
        self._file = file
        self.digest = hashlib.sha256()
        self.size_bytes = 0

    def write(self, content: bytes) -> int:
        budget.spend(len(content))
        self.digest.update(content)
        self.size_bytes += len(content)
        return self._file.write(content)

    def tell(self) -> int:
        return self.size_bytes


class _Exactly:
    """A file as long as it was when it was looked at: what is cut off meanwhile reads as zeros."""

    def __init__(self, descriptor: int, size: int) -> None:
        self._descriptor = descriptor
        self._left = size

    def read(self, wanted: int) -> bytes:
        wanted = min(wanted, self._left)
        content = os.read(self._descriptor, wanted) if wanted else b""
        content = content or bytes(wanted)
        while len(content) < wanted:
            content += os.read(self._descriptor, wanted - len(content)) or bytes(
                wanted - len(content)
            )
        self._left -= len(content)
        return content


class Packing:
    """Writes an archive into the new folder `target`; the same files make the same bytes."""

    def __init__(self, target: Path) -> None:
        target.mkdir(mode=0o700)
        self._target = target
        self._file = (target / NAME).open("xb")
        os.fchmod(self._file.fileno(), 0o600)
        self._output = _Hashing(self._file)
        self._tar = tarfile.TarFile(
            fileobj=cast("IO[bytes]", self._output),
            mode="w",
            format=tarfile.GNU_FORMAT,
            copybufsize=BUFFER_BYTES,
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._file.close()

    def tree(self, folder: Path, skip: Callable[[PurePosixPath], bool]) -> None:
        """Ordinary files and folders; nothing else is followed, whoever put it there."""
        for path, folders, names, descriptor in os.fwalk(folder, follow_symlinks=False):
            here = PurePosixPath(Path(path).relative_to(folder).as_posix())
            folders[:] = sorted(name for name in folders if not skip(here / name))
            if here.name:
                self.folder(here)
            for name in sorted(names):
                if not skip(here / name):
                    self._member(here / name, name, descriptor)

    def files(self, data: Path, folder: str, names: Iterable[str]) -> None:
        """Some of one folder of a server's data."""
        with opened(data / folder) as descriptor:
            for name in names:
                self._member(PurePosixPath(folder) / name, name, descriptor)

    def content(self, name: str, content: bytes) -> None:
        member = tarfile.TarInfo(name)
        member.size, member.mode = len(content), 0o600
        self._tar.addfile(member, io.BytesIO(content))

    def finish(self) -> Snapshot:
        self._tar.close()
        self._file.flush()
        os.fsync(self._file.fileno())
        return Snapshot(self._output.size_bytes, self._output.digest.hexdigest())

    def folder(self, name: PurePosixPath) -> None:
        member = tarfile.TarInfo(str(name))
        member.type, member.mode = tarfile.DIRTYPE, 0o700
        self._tar.addfile(member)

    def _member(self, name: PurePosixPath, path: str, folder: int) -> None:
        try:
            flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
            descriptor = os.open(path, flags, dir_fd=folder)
        except OSError:
            # Dropped since the folder was read, or a link, which is none of the server's.
            return
        try:
            found = os.fstat(descriptor)
            if stat.S_ISREG(found.st_mode):
                member = tarfile.TarInfo(str(name))
                member.size, member.mode = found.st_size, 0o600
                reading = _Exactly(descriptor, found.st_size)
                self._tar.addfile(member, cast("IO[bytes]", reading))
        finally:
            os.close(descriptor)


@contextlib.contextmanager
def opened(folder: Path) -> Iterator[int]:
    """A folder an engine may have put a link in place of, to one that it could not read itself."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def passing(name: PurePosixPath) -> bool:
    """What no copy needs."""
    base = name.name
    return base in PASSING or base.startswith((TEMPORARY, "pg_internal.init."))


def pack(data: Path, target: Path) -> Snapshot:
    """Of a server that does not run."""
    with Packing(target) as packing:
        packing.tree(data, passing)
        return packing.finish()


def copy(source: Path, data: Path, owner: int | None) -> None:
    """Into the empty folder `data`, of a server that does not run; nothing else is followed."""
    for path, folders, names, descriptor in os.fwalk(source, follow_symlinks=False):
        here = PurePosixPath(Path(path).relative_to(source).as_posix())
        for name in folders:
            (data / here / name).mkdir(mode=0o700)
            if owner is not None:
                os.chown(data / here / name, owner, owner)
        for name in names:
            if not passing(here / name):
                _copy_file(name, descriptor, data / here / name, owner)


def _copy_file(name: str, folder: int, target: Path, owner: int | None) -> None:
    try:
        flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
        descriptor = os.open(name, flags, dir_fd=folder)
    except OSError:
        return
    with os.fdopen(descriptor, "rb") as reading:
        if stat.S_ISREG(os.fstat(descriptor).st_mode):
            with target.open("xb") as writing:
                os.fchmod(writing.fileno(), 0o600)
                if owner is not None:
                    os.fchown(writing.fileno(), owner, owner)
                budget.copy(reading, writing)


def unpack(folder: Path, data: Path, owner: int | None) -> None:
    """Fills the empty folder `data`, which the server does not see yet, durably."""
    try:
        with (
            (folder / NAME).open("rb") as file,
            tarfile.open(fileobj=file, mode="r:", bufsize=BUFFER_BYTES) as tar,
        ):
            _unpack(tar, file.fileno(), data, owner)
    except (tarfile.TarError, FileNotFoundError) as error:
        raise EngineError("the snapshot is incomplete") from error
    synchronise(data)


def _unpack(tar: Iterable[tarfile.TarInfo], source: int, data: Path, owner: int | None) -> None:
    for member in tar:
        parts = PurePosixPath(member.name).parts
        if ".." in parts or member.name.startswith("/") or not (member.isdir() or member.isreg()):
            raise EngineError("the snapshot contains an unexpected entry")
        path = data.joinpath(*parts)
        if member.isdir():
            path.mkdir(mode=0o700)
            if owner is not None:
                os.chown(path, owner, owner)
            continue
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        try:
            offset, end = member.offset_data, member.offset_data + member.size
            while offset < end:
                wanted = min(end - offset, SEND_BYTES)
                budget.spend(wanted)
                sent = os.sendfile(descriptor, source, offset, wanted)
                if sent == 0:
                    raise EngineError("the snapshot is incomplete")
                offset += sent
            if owner is not None:
                os.fchown(descriptor, owner, owner)
        finally:
            os.close(descriptor)


def synchronise(folder: Path) -> None:
    """Everything written into the file system of a folder is on disk when this returns.

    One call for a thousand files, each of which would wait for the disk by itself.
    """
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        if _LIBC.syncfs(descriptor) != 0:
            number = ctypes.get_errno()
            raise OSError(number, os.strerror(number))
    finally:
        os.close(descriptor)
