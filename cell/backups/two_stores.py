"""The store of backups and the second one: what is read, and from which of them."""

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, TypeVar

import structlog

from cell.backups.rate import Rate
from cell.backups.sealed_objects import DamagedError
from cell.backups.store import MissingError, OversizedError, ReadsObjects, Store, StoreError
from cell.settings import CellSettings

T = TypeVar("T")
# So long the second is asked first: each object would wait for a store that is away.
AWAY_S: Final = 60.0
# Of an object, and not of its store.
_OF_OBJECT: Final = (MissingError, OversizedError, DamagedError)

log = structlog.get_logger("cell.backups")


@dataclass
class TwoStores:
    """Backups are written into the first, and copied into the second where there is one."""

    first: Store
    second: Store | None = None
    _away_until: float = 0.0
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def reading(self) -> "EitherStore":
        """For one backup, or one piece of WAL."""
        return EitherStore(self)

    def names(self, prefix: str) -> Iterator[str]:
        """What either has below, some of it twice. StoreError where the first is away.

        What the second does not tell is not in the way of what the first does.
        """
        yield from (each.name for each in self.first.list(prefix))
        if self.second is not None:
            with suppress(StoreError):
                yield from (each.name for each in self.second.list(prefix))

    @property
    def first_is_away(self) -> bool:
        return time.monotonic() < self._away_until

    def first_failed(self) -> None:
        with self._lock:
            self._away_until = time.monotonic() + AWAY_S


class EitherStore:
    """Each object as it was written: from the first store, or else from the second.

    What is read is checked within `attempt`, so that of a backup of which both stores have damaged
    something, but not the same, all is found.
    """

    def __init__(self, stores: TwoStores) -> None:
        self._stores = stores
        self.used_copy = False

    def attempt(self, read: Callable[[ReadsObjects], T]) -> T:
        """Raises the first store's error where neither has it; the second's if that is away."""
        first, second = self._stores.first, self._stores.second
        if second is None:
            return read(first)
        if self._stores.first_is_away:
            with suppress(StoreError, DamagedError):
                return self._from_copy(read, second)
        try:
            return read(first)
        except (StoreError, DamagedError) as error:
            fault = error
        if not isinstance(fault, _OF_OBJECT):
            self._stores.first_failed()
        try:
            return self._from_copy(read, second)
        except _OF_OBJECT:
            raise fault from None
        except StoreError as error:
            raise (error if isinstance(fault, _OF_OBJECT) else fault) from None

    def _from_copy(self, read: Callable[[ReadsObjects], T], second: Store) -> T:
        found = read(second)
        if not self.used_copy:
            log.warning("cell.backup_copy_used")
        self.used_copy = True
        return found


def open_stores(settings: CellSettings, home: Path) -> TwoStores:
    """Neither is reached before it is used. Both together are as fast as the settings say."""
    return stores_at(
        settings.backup_store_url or (home / "backups").as_uri(),
        settings.backup_copy_store_url,
        makes_folder=not settings.backup_store_url,
        rate=Rate(settings.backup_bytes_per_s),
    )


def stores_at(
    url: str, second_url: str, *, makes_folder: bool, rate: Rate | None = None
) -> TwoStores:
    """By their URLs; the second one's is empty where there is none."""
    second = Store(second_url, rate=rate, is_second=True) if second_url else None
    return TwoStores(Store(url, makes_folder=makes_folder, rate=rate), second)


def attempt(store: ReadsObjects | EitherStore, read: Callable[[ReadsObjects], T]) -> T:
    """Of either store, or of the only one."""
    return store.attempt(read) if isinstance(store, EitherStore) else read(store)
