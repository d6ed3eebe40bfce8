"""A folder, written into the store: as one archive, compressed, in sealed parts."""

import hashlib
import os
import tarfile
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing
from pathlib import Path, PurePosixPath
from typing import IO, Final, cast

import zstandard

from cell.backups.manifest import BackupName, Part, StoredContent
from cell.backups.sealed_objects import seal
from cell.backups.store import Store, WritesObjects
from cell.runtime import budget, engine_files
from cell.runtime.side_digest import SideDigest

# Of what is compressed. Some are in memory at a time: one that fills, and those being uploaded.
PART_BYTES: Final = 16 * 2**20
AT_ONCE: Final = 2
BLOCK_BYTES: Final = 1 << 20
LEVEL: Final = 3
# Of so much each thread of the compressor makes a piece; by its own measure they take 110 MB.
PIECE_BYTES: Final = 1 << 20
# Each would be read into two of them; what that saves is less than what it takes.
NO_OVERLAP: Final = 1
COMPRESSION: Final = zstandard.ZstdCompressionParameters.from_level(
    LEVEL, threads=2, job_size=PIECE_BYTES, overlap_log=NO_OVERLAP, write_checksum=True
)


class _Parts:
    """Takes the compressed stream; seals and uploads each part of it, a few at a time."""

    def __init__(
        self, store: WritesObjects, key: bytes, name: BackupName, uploads: ThreadPoolExecutor
    ) -> None:
        self._store, self._key, self._name = store, key, name
        self._uploads = uploads
        self._filling = bytearray()
        self._pending: list[Future[None]] = []
        self._written: list[Part] = []

    def write(self, content: bytes) -> int:
        self._filling += content
        while len(self._filling) >= PART_BYTES:
            self._upload(self._filling[:PART_BYTES])
            del self._filling[:PART_BYTES]
        return len(content)

    def finish(self) -> tuple[Part, ...]:
        if self._filling or not self._written:
            self._upload(self._filling)
        while self._pending:
            self._pending.pop(0).result()
        return tuple(self._written)

    def _upload(self, content: bytearray) -> None:
        while len(self._pending) >= AT_ONCE:
            self._pending.pop(0).result()
        name = self._name.part(len(self._written))
        sealed = seal(self._key, name, content)
        self._written.append(Part(len(sealed), hashlib.sha256(sealed).hexdigest()))
        self._pending.append(self._uploads.submit(self._store.put, name, sealed))


class Writing:
    """An archive that is written: counted, hashed, compressed, and put into a store in parts."""

    def __init__(
        self,
        store: WritesObjects,
        key: bytes,
        name: BackupName,
        progress: Callable[[int], None] = lambda _: None,
    ) -> None:
        self._uploads = ThreadPoolExecutor(AT_ONCE, "upload")
        self._digest = SideDigest()
        self._parts = _Parts(store, key, name, self._uploads)
        compressor = zstandard.ZstdCompressor(compression_params=COMPRESSION)
        parts = cast("IO[bytes]", self._parts)
        self._compressing = compressor.stream_writer(parts, closefd=False)
        self._progress = progress
        self._size_bytes = 0
        self._content: StoredContent | None = None

    def write(self, content: bytes | memoryview) -> int:
        """As `ArchiveOutput`."""
        budget.go_on()
        self._digest.update(content)
        self._size_bytes += len(content)
        self._compressing.write(content)
        self._progress(len(content))
        return len(content)

    def tell(self) -> int:
        return self._size_bytes

    def finish(self) -> str:
        self._compressing.flush(zstandard.FLUSH_FRAME)
        parts, digest = self._parts.finish(), self._digest.hexdigest()
        self._content = StoredContent(self._size_bytes, digest, parts)
        return digest

    def close(self) -> None:
        """Nothing more is put into the store when this returns; for `contextlib.closing`."""
        self._uploads.shutdown(cancel_futures=True)
        self._digest.close()

    def finished(self) -> StoredContent:
        assert self._content is not None
        return self._content


def write(
    store: WritesObjects,
    key: bytes,
    name: BackupName,
    folder: Path,
    progress: Callable[[int], None] = lambda _: None,
) -> StoredContent:
    """All files of a folder of the cell's; `progress` hears how many bytes more are written.

    Blocks for long; StoreError. What is in the store counts for nothing before its manifest.
    """
    with closing(Writing(store, key, name, progress)) as stream:
        _pack(folder, stream)
        stream.finish()
        return stream.finished()


def remove(store: Store, name: BackupName) -> None:
    """Its manifest first: what is left of one that was broken off does not count."""
    store.remove([name.manifest])
    store.remove_all(name.prefix)


def _pack(folder: Path, stream: Writing) -> None:
    """Names, contents and nothing else: no owner, no time, no link."""
    with tarfile.TarFile(
        fileobj=cast("IO[bytes]", stream),
        mode="w",
        format=tarfile.PAX_FORMAT,
        copybufsize=BLOCK_BYTES,
    ) as tar:
        for here, _, names, descriptor in engine_files.walk(folder):
            if here.name:
                member = tarfile.TarInfo(str(here))
                member.type, member.mode = tarfile.DIRTYPE, 0o700
                tar.addfile(member)
            for name in names:
                _add(tar, here / name, descriptor)


def _add(tar: tarfile.TarFile, name: PurePosixPath, folder: int) -> None:
    opened = engine_files.open_file(name.name, folder)
    if opened is None:
        return
    with os.fdopen(opened, "rb") as file:
        member = tarfile.TarInfo(str(name))
        member.size, member.mode = os.fstat(opened).st_size, 0o600
        tar.addfile(member, file)
