"""A cluster's files in one file: a snapshot, or the template that new instances are made from."""

import io
import itertools
import os
import tarfile
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing
from pathlib import Path, PurePosixPath
from typing import IO, cast

from cell.engines.driver import EngineError, Snapshot
from cell.engines.packed_snapshots import BLOCKS_KEPT, ArchiveOutput
from cell.runtime import budget, disks, engine_files
from cell.runtime.engine_files import EnginePath
from cell.runtime.side_digest import SideDigest

NAME = "cluster.tar"
UNPACKED = "cluster"
BUFFER_BYTES = 1 << 20
SEND_BYTES = 1 << 26
# Of a server that runs or ran, and of no use to another.
PASSING = frozenset({"postmaster.pid", "postmaster.opts", "pg_internal.init"})
# Tells a folder of data from every copy of it; see increments.py.
DATA_ID = "menagerie.data_id"
TEMPORARY = "pgsql_tmp"


class ArchiveFile:
    """The archive of a snapshot, in the new folder `target`; on disk when it is finished."""

    def __init__(self, target: Path) -> None:
        target.mkdir(mode=0o700)
        self._file = (target / NAME).open("xb")
        os.fchmod(self._file.fileno(), 0o600)
        self._digest = SideDigest()

    def write(self, content: bytes | memoryview) -> int:
        self._digest.update(content)
        return self._file.write(content)

    def finish(self) -> str:
        self._file.flush()
        os.fsync(self._file.fileno())
        return self._digest.hexdigest()

    def close(self) -> None:
        self._digest.close()
        self._file.close()


class _Spending:
    """Counts what is written."""

    def __init__(self, output: ArchiveOutput) -> None:
        self._output = output
        self.size_bytes = 0

    def write(self, content: bytes | memoryview) -> int:
        budget.spend(len(content))
        self.size_bytes += len(content)
        return self._output.write(content)

    def tell(self) -> int:
        return self.size_bytes


class _Exactly:
    """A file as long as it was when it was looked at: what is cut off meanwhile reads as zeros."""

    def __init__(self, descriptor: int, size: int, blocks: Iterator[memoryview]) -> None:
        self._descriptor = descriptor
        self._left = size
        self._blocks = blocks

    def read(self, wanted: int) -> memoryview:
        """Into the next of the blocks, which are of `BUFFER_BYTES`."""
        content = next(self._blocks)[: min(wanted, self._left)]
        done = 0
        while done < len(content):
            count = os.readv(self._descriptor, [content[done:]])
            if count == 0:
                content[done:] = bytes(len(content) - done)
                break
            done += count
        self._left -= len(content)
        return content


class Packing:
    """Writes an archive, below a folder `top` in it; the same files make the same bytes."""

    def __init__(self, output: ArchiveOutput, top: str = "") -> None:
        self._output = output
        self._counted = _Spending(output)
        self._top = PurePosixPath(top)
        # Memory is asked for once: for each block anew, it would take longer than the copy.
        blocks = [memoryview(bytearray(BUFFER_BYTES)) for _ in range(BLOCKS_KEPT + 2)]
        self._blocks = itertools.cycle(blocks)
        self._tar = tarfile.TarFile(
            fileobj=cast("IO[bytes]", self._counted),
            mode="w",
            format=tarfile.GNU_FORMAT,
            copybufsize=BUFFER_BYTES,
        )

    def tree(self, folder: EnginePath, skip: Callable[[PurePosixPath], bool]) -> None:
        """Ordinary files and folders; nothing else is followed, whoever put it there."""
        if self._top.name:
            self.folder(PurePosixPath())
        for here, folders, names, descriptor in engine_files.walk(folder):
            folders[:] = [name for name in folders if not skip(here / name)]
            if here.name:
                self.folder(here)
            for name in names:
                if not skip(here / name):
                    self._member(here / name, name, descriptor)

    def files(self, data: EnginePath, folder: str, names: Iterable[str]) -> None:
        """Some of one folder of a server's data."""
        with engine_files.held(data / folder) as descriptor:
            for name in names:
                self._member(PurePosixPath(folder) / name, name, descriptor)

    def content(self, name: str, content: bytes) -> None:
        member = tarfile.TarInfo(str(self._top / name))
        member.size, member.mode = len(content), 0o600
        self._tar.addfile(member, io.BytesIO(content))

    def finish(self) -> Snapshot:
        self._tar.close()
        return Snapshot(self._counted.size_bytes, self._output.finish())

    def folder(self, name: PurePosixPath) -> None:
        member = tarfile.TarInfo(str(self._top / name))
        member.type, member.mode = tarfile.DIRTYPE, 0o700
        self._tar.addfile(member)

    def _member(self, name: PurePosixPath, path: str, folder: int) -> None:
        if (descriptor := engine_files.open_file(path, folder)) is None:
            # Dropped since the folder was read, or a link, which is none of the server's.
            return
        try:
            self._add(name, path, folder, descriptor)
        finally:
            os.close(descriptor)

    def _add(self, name: PurePosixPath, path: str, folder: int, descriptor: int) -> int:  # noqa: ARG002 - of others
        """Answers how much of it was written."""
        member = tarfile.TarInfo(str(self._top / name))
        member.size, member.mode = os.fstat(descriptor).st_size, 0o600
        reading = _Exactly(descriptor, member.size, self._blocks)
        self._tar.addfile(member, cast("IO[bytes]", reading))
        return member.size


def passing(name: PurePosixPath) -> bool:
    """What no copy needs."""
    base = name.name
    return (
        base in PASSING or str(name) == DATA_ID or base.startswith((TEMPORARY, "pg_internal.init."))
    )


def pack(data: EnginePath, target: Path) -> Snapshot:
    """Of a server that does not run, into the new folder `target`."""
    with closing(ArchiveFile(target)) as output:
        return pack_into(data, Packing(output))


def pack_into(data: EnginePath, packing: Packing) -> Snapshot:
    packing.tree(data, passing)
    return packing.finish()


def copy(source: EnginePath, data: EnginePath, owner: int | None) -> None:
    """Into the empty folder `data`, of a server that does not run; nothing else is followed."""
    engine_files.copy_tree(source, data, passing, owner)


def fill(folder: Path, data: EnginePath, owner: int | None) -> None:
    """The empty folder `data`, from a snapshot that is packed, or unpacked already."""
    unpacked = folder / UNPACKED
    if not unpacked.is_dir():
        unpack(folder, data, owner)
        return
    if owner is not None:
        engine_files.give(unpacked, owner)
    engine_files.rename(unpacked, data)


def unpack(folder: Path, data: EnginePath, owner: int | None) -> None:
    """Fills the empty folder `data`, which the server does not see yet, durably."""
    try:
        with (
            (folder / NAME).open("rb") as file,
            tarfile.open(fileobj=file, mode="r:", bufsize=BUFFER_BYTES) as tar,
        ):
            _unpack(tar, file.fileno(), data, owner)
    except (tarfile.TarError, FileNotFoundError) as error:
        raise EngineError("the snapshot is incomplete") from error
    disks.synchronise(data)


def _unpack(
    tar: Iterable[tarfile.TarInfo], source: int, data: EnginePath, owner: int | None
) -> None:
    for member in tar:
        parts = PurePosixPath(member.name).parts
        if ".." in parts or member.name.startswith("/") or not (member.isdir() or member.isreg()):
            raise EngineError("the snapshot contains an unexpected entry")
        place = data / PurePosixPath(*parts)
        if member.isdir():
            engine_files.make_folder(place, owner)
            continue
        with engine_files.parent_of(place) as (parent, name):
            descriptor = engine_files.create(name, parent, owner)
        try:
            offset, end = member.offset_data, member.offset_data + member.size
            while offset < end:
                wanted = min(end - offset, SEND_BYTES)
                budget.spend(wanted)
                sent = os.sendfile(descriptor, source, offset, wanted)
                if sent == 0:
                    raise EngineError("the snapshot is incomplete")
                offset += sent
        finally:
            os.close(descriptor)
