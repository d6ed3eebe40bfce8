"""A backup, read back from the store: every byte is checked before anything is made of it."""

import contextlib
import hashlib
import tarfile
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import IO, Final, cast

import zstandard

from cell.backups import unpacking
from cell.backups.manifest import MANIFEST_BYTES_MAX, BackupName, Manifest, Part
from cell.backups.sealed_objects import DamagedError, unseal
from cell.backups.store import MissingError, OversizedError, ReadsObjects
from cell.backups.two_stores import EitherStore, attempt
from cell.backups.unpacking import BackupContent
from cell.runtime import budget
from cell.runtime.side_digest import SideDigest

# Memory for larger ones is asked of the system anew each time, which takes longer than the copy.
READ_BYTES: Final = 1 << 18
# Of what is decompressed; these are in memory, and filled again and again.
BLOCK_BYTES: Final = 1 << 20
BLOCKS: Final = 4
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


@contextlib.contextmanager
def _decompressed(compressed: _Parts, digest: SideDigest | None) -> Iterator[Iterator[memoryview]]:
    """Blocks, a few ahead of who takes them; each is the taker's until he takes the next."""
    thread = ThreadPoolExecutor(1, "decompress")
    decompressor = zstandard.ZstdDecompressor(max_window_size=WINDOW_BYTES_MAX)
    opened = decompressor.stream_reader(
        cast("IO[bytes]", compressed), read_size=READ_BYTES, closefd=False
    )

    def fill(block: bytearray) -> tuple[bytearray, int]:
        return block, opened.readinto(block)

    def each() -> Iterator[memoryview]:
        coming = deque(thread.submit(fill, bytearray(BLOCK_BYTES)) for _ in range(BLOCKS))
        while (found := coming.popleft().result())[1]:
            block, count = found
            content = memoryview(block)[:count]
            counted = None if digest is None else digest.update(content)
            yield content
            if counted is not None:
                counted.result()
            coming.append(thread.submit(fill, block))

    try:
        yield each()
    finally:
        thread.shutdown(cancel_futures=True)


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
    _through(store, key, found, progress, lambda _: None, SideDigest())


def unpack(
    store: ReadsObjects | EitherStore,
    key: bytes,
    found: Manifest,
    target: Path,
    progress: Callable[[int], None] = lambda _: None,
    archive: str | None = None,
    *,
    verified: bool = False,
) -> None:
    """Into the new folder `target`, of the cell's. Raises DamagedError or StoreError.

    An `archive` in it is unpacked at once, to a folder of its name without the suffix. What was
    written of one that is damaged is left to the caller to remove.

    Of one that was `verified` when it was made, the digest of its content is not counted again:
    it is made of nothing but the parts, and of each of those the digest is compared.
    """
    target.mkdir(mode=0o700)
    digest = None if verified else SideDigest()
    _through(store, key, found, progress, lambda it: unpacking.unpack(it, target, archive), digest)


def unpack_onto(
    store: ReadsObjects | EitherStore,
    key: bytes,
    found: Manifest,
    target: Path,
    progress: Callable[[int], None] = lambda _: None,
    *,
    verified: bool = False,
) -> None:
    """What is in the folder `target`, of the backup that this one builds on, becomes this one."""
    digest = None if verified else SideDigest()
    _through(store, key, found, progress, lambda it: unpacking.unpack_onto(it, target), digest)


def _through(
    store: ReadsObjects | EitherStore,
    key: bytes,
    found: Manifest,
    progress: Callable[[int], None],
    work: Callable[[BackupContent], None],
    digest: SideDigest | None,
) -> None:
    """Closes the digest."""
    bytes_max = found.content.stream_bytes
    with contextlib.ExitStack() as stack:
        if digest is not None:
            stack.enter_context(contextlib.closing(digest))
        compressed = _Parts(stack.enter_context(_ahead(parts(store, key, found))))
        blocks = stack.enter_context(_decompressed(compressed, digest))
        content = BackupContent(blocks, bytes_max, progress)
        try:
            work(content)
            content.skip()
        # The latter also where a name or a size in the archive is none.
        except (zstandard.ZstdError, tarfile.TarError, ValueError) as error:
            raise DamagedError(f"the backup cannot be read: {error}") from error
        if compressed.read(1):
            raise DamagedError("the backup has more parts than its content")
        counted = found.content.stream_sha256 if digest is None else digest.hexdigest()
    if (content.received_bytes, counted) != (bytes_max, found.content.stream_sha256):
        raise DamagedError("the backup is not what its manifest says")
