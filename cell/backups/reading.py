"""A backup, read back from the store: every byte is checked before anything is made of it."""

import contextlib
import hashlib
import os
import tarfile
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path, PurePosixPath
from typing import IO, Final, cast

import zstandard

from cell.backups.manifest import MANIFEST_BYTES_MAX, BackupName, Manifest, Part
from cell.backups.sealed_objects import DamagedError, unseal
from cell.backups.store import MissingError, OversizedError, ReadsObjects
from cell.backups.two_stores import EitherStore, attempt
from cell.runtime import budget, engine_files
from cell.runtime.disks import WritingBehind
from cell.runtime.side_digest import SideDigest

# Memory for larger ones is asked of the system anew each time, which takes longer than the copy.
BLOCK_BYTES: Final = 1 << 18
# More than what is written has; no frame makes the reader take more memory.
WINDOW_BYTES_MAX: Final = 1 << 27


class _Parts:
    """The compressed stream, part after part, each of which is what the manifest says."""

    def __init__(self, contents: Iterator[bytearray]) -> None:
        self._contents = contents
        self._now = memoryview(b"")

    def read(self, wanted: int = -1) -> bytes:
        if not self._now:
            self._now = memoryview(next(self._contents, b""))
        given = self._now if wanted < 0 else self._now[:wanted]
        self._now = self._now[len(given) :]
        return bytes(given)


def parts(store: ReadsObjects | EitherStore, key: bytes, found: Manifest) -> Iterator[bytearray]:
    """The compressed archive. Raises DamagedError or StoreError."""
    for number, part in enumerate(found.content.parts):
        budget.go_on()
        name = found.name.part(number)

        def read(one: ReadsObjects, number: int = number, part: Part = part) -> bytes:
            return sealed_part(one, found.name, number, part)

        yield unseal(key, name, attempt(store, read))


def sealed_part(store: ReadsObjects, name: BackupName, number: int, part: Part) -> bytes:
    """As it was written. Raises DamagedError or StoreError."""
    try:
        sealed = store.get(name.part(number), part.stored_bytes)
    except MissingError as error:
        raise DamagedError(f"part {number} of the backup is missing") from error
    except OversizedError as error:
        raise DamagedError(f"part {number} of the backup is too large") from error
    if hashlib.sha256(sealed).hexdigest() != part.sha256:
        raise DamagedError(f"part {number} of the backup is not the one that was written")
    return sealed


@contextlib.contextmanager
def _ahead(contents: Iterator[bytearray]) -> Iterator[Iterator[bytearray]]:
    """The same, each got while the one before it is worked on."""
    with ThreadPoolExecutor(1, "ahead") as thread:

        def each() -> Iterator[bytearray]:
            coming = thread.submit(next, contents, None)
            while (content := coming.result()) is not None:
                coming = thread.submit(next, contents, None)
                yield content

        yield each()


class _Stream:
    """What the archive is read from: counted and hashed."""

    def __init__(
        self,
        source: IO[bytes],
        bytes_max: int,
        digest: SideDigest,
        progress: Callable[[int], None],
    ) -> None:
        self._source = source
        self._bytes_max = bytes_max
        self._progress = progress
        self.digest = digest
        self.size_bytes = 0

    def read(self, wanted: int) -> bytes:
        budget.go_on()
        content = self._source.read(wanted)
        self.digest.update(content)
        self.size_bytes += len(content)
        if self.size_bytes > self._bytes_max:
            raise DamagedError("the backup is longer than its manifest says")
        self._progress(len(content))
        return content


def manifest(store: ReadsObjects | EitherStore, key: bytes, name: BackupName) -> Manifest:
    """Raises MissingError, DamagedError or StoreError."""
    return attempt(store, lambda one: Manifest.unseal(key, name, sealed_manifest(one, name)))


def sealed_manifest(store: ReadsObjects, name: BackupName) -> bytes:
    """Raises MissingError, DamagedError or StoreError."""
    try:
        return store.get(name.manifest, MANIFEST_BYTES_MAX)
    except OversizedError as error:
        raise DamagedError("the manifest is too large") from error


def check(
    store: ReadsObjects | EitherStore,
    key: bytes,
    found: Manifest,
    progress: Callable[[int], None] = lambda _: None,
) -> None:
    """Reads all of it and keeps nothing. Raises DamagedError or StoreError."""
    _through(store, key, found, progress, lambda _: None)


def unpack(
    store: ReadsObjects | EitherStore,
    key: bytes,
    found: Manifest,
    target: Path,
    progress: Callable[[int], None] = lambda _: None,
    archive: str | None = None,
) -> None:
    """Into the new folder `target`, of the cell's. Raises DamagedError or StoreError.

    An `archive` in it is unpacked at once, to a folder of its name without the suffix. What was
    written of one that is damaged is left to the caller to remove.
    """
    target.mkdir(mode=0o700)
    _through(store, key, found, progress, lambda stream: _unpack(stream, target, archive))


def _through(
    store: ReadsObjects | EitherStore,
    key: bytes,
    found: Manifest,
    progress: Callable[[int], None],
    work: Callable[[_Stream], None],
) -> None:
    bytes_max = found.content.stream_bytes
    with _ahead(parts(store, key, found)) as contents, contextlib.closing(SideDigest()) as digest:
        compressed = cast("IO[bytes]", _Parts(contents))
        decompressor = zstandard.ZstdDecompressor(max_window_size=WINDOW_BYTES_MAX)
        try:
            with decompressor.stream_reader(compressed, closefd=False) as opened:
                stream = _Stream(cast("IO[bytes]", opened), bytes_max, digest, progress)
                work(stream)
                while stream.read(BLOCK_BYTES):
                    pass
        # The latter also where a name or a size in the archive is none.
        except (zstandard.ZstdError, tarfile.TarError, ValueError) as error:
            raise DamagedError(f"the backup cannot be read: {error}") from error
        if compressed.read(1):
            raise DamagedError("the backup has more parts than its content")
        read = (stream.size_bytes, digest.hexdigest())
    if read != (bytes_max, found.content.stream_sha256):
        raise DamagedError("the backup is not what its manifest says")


def _unpack(source: IO[bytes] | _Stream, target: Path, archive: str | None) -> None:
    with tarfile.open(fileobj=cast("IO[bytes]", source), mode="r|", bufsize=BLOCK_BYTES) as tar:
        for member in tar:
            words = PurePosixPath(member.name).parts
            # A sparse file is longer than what is in the archive.
            plain = member.isdir() or (member.isreg() and not member.issparse())
            if not plain or ".." in words or member.name.startswith("/") or not words:
                raise DamagedError("the backup contains an unexpected entry")
            place = target.joinpath(*words)
            if member.isdir():
                engine_files.make_folder(place)
                continue
            content = tar.extractfile(member)
            assert content is not None
            if member.name == archive:
                engine_files.make_folder(place.with_suffix(""))
                _unpack(content, place.with_suffix(""), None)
                continue
            with engine_files.parent_of(place) as (parent, name):
                descriptor = engine_files.create(name, parent)
            with os.fdopen(descriptor, "wb") as file:
                budget.copy(content, WritingBehind(file))
