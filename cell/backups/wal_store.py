"""Archived WAL in the store: each segment compressed and sealed by itself, by its name."""

from collections.abc import Iterable
from functools import partial
from typing import Final

import zstandard

from cell.backups import sealed_objects
from cell.backups.keys import BackupKeys
from cell.backups.sealed_objects import DamagedError
from cell.backups.store import MissingError, OversizedError, ReadsObjects, Store, StoreError
from cell.backups.two_stores import EitherStore, TwoStores, attempt
from cell.backups.wal_names import PARTIAL, SEGMENT_BYTES, of_chain
from cell.runtime.own_threads import in_daemon_thread, in_own_thread

LEVEL: Final = 1
"""It never ends, and a server that writes much has few CPUs."""
SEALED_BYTES_MAX: Final = SEGMENT_BYTES + 2**20


class WalStore:
    """Waits for the store on threads of its own. Raises StoreError, and DamagedError on reading."""

    def __init__(self, stores: TwoStores, keys: BackupKeys) -> None:
        self.stores = stores
        self._store = stores.first
        self._keys = keys

    async def put(self, instance_id: str, chain_id: str, name: str, content: bytes) -> None:
        """In place of what is there under that name; what is whole stays after a power cut too."""
        key = self._keys.of(instance_id)
        await in_daemon_thread(self._put, key, of_chain(instance_id, chain_id) + name, content)

    def _put(self, key: bytes, name: str, content: bytes) -> None:
        compressed = zstandard.ZstdCompressor(level=LEVEL).compress(content)
        self._store.put(name, sealed_objects.seal(key, name, compressed))
        if not name.endswith(PARTIAL):
            self._store.settle()

    async def get(
        self, instance_id: str, chain_id: str, name: str, either: EitherStore | None = None
    ) -> bytes:
        """At most a segment."""
        if (key := self._keys.find(instance_id)) is None:
            raise DamagedError("the key of the instance's backups is gone")
        prefix = of_chain(instance_id, chain_id)
        read = partial(_content, key=key, prefix=prefix, name=name)
        return await in_own_thread(attempt, either or self.stores.reading(), read)

    async def names_in_each(self, instance_id: str, chain_id: str) -> tuple[set[str], set[str]]:
        """Of all that lies of a chain in the first store, and in the second.

        Nothing in one that does not answer, unless it is the only one, or neither does.
        """
        prefix = of_chain(instance_id, chain_id)

        def each_of_both() -> tuple[set[str], set[str]]:
            second = self.stores.second
            try:
                first = _names(self.stores.first, prefix)
            except StoreError:
                if second is None:
                    raise
                self.stores.first_failed()
                return set(), _names(second, prefix)
            if second is None:
                return first, set()
            try:
                return first, _names(second, prefix)
            except StoreError:
                return first, set()

        return await in_own_thread(each_of_both)

    async def names(self, instance_id: str, chain_id: str) -> set[str]:
        """Of all that is there of a chain."""
        prefix = of_chain(instance_id, chain_id)
        return await in_own_thread(_names, self._store, prefix)

    async def remove(self, instance_id: str, chain_id: str, names: Iterable[str]) -> None:
        prefix = of_chain(instance_id, chain_id)
        await in_own_thread(self._store.remove, [prefix + name for name in names])

    async def remove_chain(self, instance_id: str, chain_id: str) -> None:
        await in_own_thread(self._store.remove_all, of_chain(instance_id, chain_id))


def _names(store: Store, prefix: str) -> set[str]:
    return {each.name.removeprefix(prefix) for each in store.list(prefix)}


def _content(store: ReadsObjects, *, key: bytes, prefix: str, name: str) -> bytes:
    try:
        sealed = store.get(prefix + name, SEALED_BYTES_MAX)
    except MissingError as error:
        raise DamagedError(f"WAL segment {name} is missing from the store") from error
    except OversizedError as error:
        raise DamagedError(f"WAL segment {name} is larger than what was archived") from error
    return opened(key, prefix + name, sealed)


def opened(key: bytes, path: str, sealed: bytes) -> bytes:
    """What was archived under that name of an object. Raises DamagedError."""
    compressed = sealed_objects.unseal(key, path, sealed)
    try:
        decompressor = zstandard.ZstdDecompressor(max_window_size=2 * SEGMENT_BYTES)
        return decompressor.decompress(compressed, max_output_size=SEGMENT_BYTES)
    except zstandard.ZstdError as error:
        name = path.rpartition("/")[2]
        raise DamagedError(f"WAL segment {name} cannot be read: {error}") from error
