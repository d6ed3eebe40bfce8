"""Where backups are kept: a folder, or a bucket at S3, Google Cloud Storage or Azure."""

import contextlib
import errno
import os
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Final, Protocol
from urllib.parse import unquote, urlsplit

import structlog

from cell.runtime import disks, engine_files

if TYPE_CHECKING:
    from obstore.store import ObjectStore

log = structlog.get_logger("cell.backups")

SCHEMES: Final = ("file", "s3", "gs", "az")
# Of one request, with what it sends or gets; and of all its repetitions.
REQUEST_TIMEOUT: Final = timedelta(seconds=120)
CONNECT_TIMEOUT: Final = timedelta(seconds=10)
RETRY_TIMEOUT: Final = timedelta(seconds=60)
RETRIES: Final = 5
_NO_SPACE = re.compile(rf"\(os error ({errno.ENOSPC}|{errno.EDQUOT})\)")


class StoreError(Exception):
    """The store did not do what was asked; the text is for the owner, the log has the rest."""


class OversizedError(StoreError):
    """An object is larger than what was written under its name."""


class MissingError(StoreError):
    """There is no such object."""


@dataclass(frozen=True)
class StoreEntry:
    """An object there is."""

    name: str
    size_bytes: int


class ReadsObjects(Protocol):
    """Where archives are read from: a store, or a file that has the objects of one."""

    def get(self, name: str, bytes_max: int) -> bytes: ...


class WritesObjects(Protocol):
    """Where archives are written to, by several threads."""

    def put(self, name: str, content: bytes) -> None: ...


class Store:
    """Objects by names of ids and slashes. Every call blocks, and raises StoreError.

    Reached when it is first used: a cell starts while its store is away.
    """

    def __init__(self, url: str, *, makes_folder: bool = False) -> None:
        """A folder that is missing may be a volume that is not mounted: it is only made if told."""
        self._url = url
        self._makes_folder = makes_folder
        self._reached: ObjectStore | None = None
        parts = urlsplit(url)
        if parts.scheme not in SCHEMES:
            raise StoreError(f"a store of backups begins with one of {', '.join(SCHEMES)}")
        # A folder has ways of its own: to disk when it is told, and names left by who was killed.
        self._folder = Path(unquote(parts.path)) if parts.scheme == "file" else None

    def put(self, name: str, content: bytes) -> None:
        """In place of what is there under that name."""
        self._put(name, content, "overwrite")

    def create(self, name: str, content: bytes) -> bool:
        """False where there is one already, which stays."""
        from obstore.exceptions import AlreadyExistsError, PreconditionError  # noqa: PLC0415

        try:
            self._put(name, content, "create")
        except (AlreadyExistsError, PreconditionError):
            return False
        return True

    def get(self, name: str, bytes_max: int) -> bytes:
        """All of it. Raises MissingError, or OversizedError without having read it."""
        import obstore  # noqa: PLC0415 - see _store

        with self._told("read", name):
            found = obstore.get(self._store(), name)
            if found.meta["size"] > bytes_max:
                raise OversizedError("an object in the store is larger than what was written")
            return bytes(found.bytes())

    def list(self, prefix: str) -> Iterator[StoreEntry]:
        """What lies below, which ends with a slash; in no order."""
        import obstore  # noqa: PLC0415 - see _store

        with self._told("list", prefix):
            for chunk in obstore.list(self._store(), prefix=prefix):
                for each in chunk:
                    yield StoreEntry(each["path"], each["size"])

    def remove(self, names: Iterable[str]) -> None:
        """Those that are there."""
        import obstore  # noqa: PLC0415 - see _store

        left = list(names)
        if left and self._folder is None:
            with self._told("remove", left[0]):
                obstore.delete(self._store(), left)
            return
        for name in left:
            with self._told("remove", name), contextlib.suppress(FileNotFoundError):
                obstore.delete(self._store(), name)

    def remove_all(self, prefix: str) -> None:
        """Everything below, and what a writer that was killed had not finished."""
        self.remove([each.name for each in self.list(prefix)])
        if self._folder is not None:
            with self._told("remove", prefix):
                engine_files.remove(self._folder / prefix.rstrip("/"))

    def settle(self) -> None:
        """What was put is there after a power cut too."""
        if self._folder is not None:
            with self._told("write", "to disk"):
                self._store()
                disks.synchronise(self._folder)

    def _put(self, name: str, content: bytes, mode: str) -> None:
        import obstore  # noqa: PLC0415 - see _store

        with self._told("write", name):
            # In one piece: in several, each would be copied, and what is broken off would stay.
            obstore.put(self._store(), name, content, mode=mode, use_multipart=False)  # type: ignore[arg-type]

    def _store(self) -> "ObjectStore":
        """Slow to import, and most cells that start make no backup for hours."""
        if self._folder is not None:
            if self._makes_folder:
                self._folder.mkdir(mode=0o700, exist_ok=True)
            if not self._folder.is_dir():
                raise StoreError("the folder of the store of backups is missing")
        if self._reached is None:
            from obstore.store import LocalStore, from_url  # noqa: PLC0415

            if self._folder is not None:
                self._folder.chmod(0o700)
                self._reached = LocalStore(self._folder, automatic_cleanup=True)
            else:
                self._reached = from_url(
                    self._url,
                    client_options={
                        "timeout": REQUEST_TIMEOUT,
                        "connect_timeout": CONNECT_TIMEOUT,
                        # Only where the environment names such an endpoint.
                        "allow_http": os.environ.get("AWS_ALLOW_HTTP", "") == "true",
                    },
                    retry_config={"max_retries": RETRIES, "retry_timeout": RETRY_TIMEOUT},
                )
        return self._reached

    @contextlib.contextmanager
    def _told(self, verb: str, name: str) -> Iterator[None]:
        from obstore import exceptions  # noqa: PLC0415 - see _store

        try:
            yield
        except FileNotFoundError as error:
            raise MissingError("the store of backups does not have an object") from error
        except (exceptions.AlreadyExistsError, exceptions.PreconditionError):
            raise
        except (exceptions.BaseError, OSError, ValueError) as error:
            # Of several lines, with paths and addresses that are for nobody but whoever runs this.
            first = (str(error).splitlines() or [type(error).__name__])[0]
            log.warning("cell.backup_store_failed", act=verb, object=name, reason=first)
            full = _NO_SPACE.search(str(error)) or getattr(error, "errno", 0) == errno.ENOSPC
            why = "is full" if full else "does not respond as it should"
            raise StoreError(f"the store of backups {why}; see the log of the cell") from error
