"""Parts of a backup that are sealed, in a folder of the cell's, until they are in the store."""

from collections import deque
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from cell.backups.manifest import BackupName, StoredContent
from cell.backups.store import WritesObjects
from cell.backups.writing import AT_ONCE
from cell.runtime import budget


class SealedParts:
    """The new folder that they lie in."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir(mode=0o700)
        self._folder = folder

    def put(self, name: str, content: bytes) -> None:
        (self._folder / PurePosixPath(name).name).write_bytes(content)

    def read(self, name: str) -> bytes:
        return (self._folder / PurePosixPath(name).name).read_bytes()


@dataclass(frozen=True)
class Packed:
    """All parts of a backup."""

    spool: SealedParts
    content: StoredContent


def upload(
    store: WritesObjects, name: BackupName, packed: Packed, progress: Callable[[int], None]
) -> None:
    """Some at a time; `progress` hears how many more bytes of what is in them are there.

    Blocks for long; StoreError. What is in the store counts for nothing before its manifest.
    """
    content = packed.content

    def put(number: int) -> None:
        part = name.part(number)
        store.put(part, packed.spool.read(part))

    pending: deque[Future[None]] = deque()
    with ThreadPoolExecutor(AT_ONCE, "upload") as uploads:
        for number in range(len(content.parts)):
            budget.go_on()
            if len(pending) == AT_ONCE:
                pending.popleft().result()
            pending.append(uploads.submit(put, number))
            progress(content.stream_bytes // len(content.parts))
        while pending:
            pending.popleft().result()
