"""Where backups are kept: a folder, or a bucket at S3, Google Cloud Storage or Azure."""

import contextlib
import errno
import os
import re
import stat
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Final, Protocol
from urllib.parse import unquote, urlsplit

import structlog

from cell.backups import variables
from cell.backups.rate import Rate
from cell.runtime import disks, engine_files
from cell.runtime.engine_files import EnginePath

if TYPE_CHECKING:
    from obstore.store import ObjectStore

log = structlog.get_logger("cell.backups")

SCHEMES: Final = ("file", "s3", "gs", "az")
# Of one request, with what it sends or gets; and of all its repetitions.
REQUEST_TIMEOUT: Final = timedelta(seconds=120)
CONNECT_TIMEOUT: Final = timedelta(seconds=10)
RETRY_TIMEOUT: Final = timedelta(seconds=60)
RETRIES: Final = 5
FOLDER_MODE: Final = 0o700
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

    def __init__(
        self,
        url: str,
        *,
        makes_folder: bool = False,
        rate: Rate | None = None,
        is_second: bool = False,
    ) -> None:
        """A folder that is missing may be a volume that is not mounted: it is only made if told.

        The second store has credentials of its own, and another name in what is told.
        """
        self._url = url
        self._is_second = is_second
        self._title = "the second store of backups" if is_second else "the store of backups"
        self._rate = rate or Rate()
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
            found = obstore.get(self._store(), self._checked(name))
            if found.meta["size"] > bytes_max:
                raise OversizedError("an object in the store is larger than what was written")
            self._rate.spend(found.meta["size"])
            return bytes(found.bytes())

    def list(self, prefix: str) -> Iterator[StoreEntry]:
        """What lies below, which ends with a slash; in no order."""
        import obstore  # noqa: PLC0415 - see _store

        with self._told("list", prefix):
            store = self._store()
            if self._folder is not None:
                yield from _files_in(EnginePath(self._folder) / prefix, prefix)
                return
            for chunk in obstore.list(store, prefix=prefix):
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
            with self._told("remove", name):
                self._remove_in_folder(name)

    def remove_all(self, prefix: str) -> None:
        """Everything below, and what a writer that was killed had not finished."""
        if self._folder is None:
            self.remove([each.name for each in self.list(prefix)])
            return
        with self._told("remove", prefix):
            self._remove_in_folder(prefix)

    def _remove_in_folder(self, name: str) -> None:
        """A link itself, and nothing that it leads to."""
        self._store()
        assert self._folder is not None
        try:
            engine_files.remove(EnginePath(self._folder) / name)
        except OSError as error:
            if error.errno not in engine_files.OTHER:
                raise

    def _checked(self, name: str) -> str:
        """Of a folder: whoever else can write there may have put links, or pipes, in the place."""
        if self._folder is None:
            return name
        place, parts = EnginePath(self._folder), PurePosixPath(name).parts
        for number, part in enumerate(parts, start=1):
            place /= part
            if (found := engine_files.find(place)) is None:
                break
            expected = stat.S_ISREG if number == len(parts) else stat.S_ISDIR
            if not expected(found.st_mode):
                raise OSError(errno.ELOOP, f"{place.name} is a link, or of another kind")
        return name

    def settle(self) -> None:
        """What was put is there after a power cut too."""
        if self._folder is not None:
            with self._told("write", "to disk"):
                self._store()
                disks.synchronise(self._folder)

    def _put(self, name: str, content: bytes, mode: str) -> None:
        import obstore  # noqa: PLC0415 - see _store

        self._rate.spend(len(content))
        with self._told("write", name):
            # In one piece: in several, each would be copied, and what is broken off would stay.
            obstore.put(self._store(), self._checked(name), content, mode=mode, use_multipart=False)  # type: ignore[arg-type]

    def _store(self) -> "ObjectStore":
        """Slow to import, and most cells that start make no backup for hours."""
        if self._folder is not None:
            if self._makes_folder:
                self._folder.mkdir(mode=FOLDER_MODE, exist_ok=True)
            if not self._folder.is_dir():
                raise StoreError(f"the folder of {self._title} is missing")
            # Another one, where a volume was mounted meanwhile.
            if stat.S_IMODE(self._folder.stat().st_mode) != FOLDER_MODE:
                self._folder.chmod(FOLDER_MODE)
        if self._reached is None:
            from obstore.store import LocalStore, from_url  # noqa: PLC0415

            if self._folder is not None:
                self._reached = LocalStore(self._folder, automatic_cleanup=True)
            else:
                told = variables.of_first()
                if self._is_second:
                    told = variables.of_second(urlsplit(self._url).scheme)
                self._reached = from_url(
                    self._url,
                    client_options={
                        "timeout": REQUEST_TIMEOUT,
                        "connect_timeout": CONNECT_TIMEOUT,
                        # Only where the environment names such an endpoint.
                        "allow_http": told.allows_http,
                    },
                    retry_config={"max_retries": RETRIES, "retry_timeout": RETRY_TIMEOUT},
                    **told.options,
                )
        return self._reached

    @contextlib.contextmanager
    def _told(self, verb: str, name: str) -> Iterator[None]:
        from obstore import exceptions  # noqa: PLC0415 - see _store

        try:
            yield
        except FileNotFoundError as error:
            raise MissingError(f"{self._title} does not have an object") from error
        except (exceptions.AlreadyExistsError, exceptions.PreconditionError):
            raise
        except (exceptions.BaseError, OSError, ValueError) as error:
            # Of several lines, with paths and addresses that are for nobody but whoever runs this.
            first = (str(error).splitlines() or [type(error).__name__])[0]
            which = "second" if self._is_second else "first"
            log.warning(
                "cell.backup_store_failed", store=which, act=verb, object=name, reason=first
            )
            full = _NO_SPACE.search(str(error)) or getattr(error, "errno", 0) == errno.ENOSPC
            why = "is full" if full else "does not respond as it should"
            raise StoreError(f"{self._title} {why}; see the log of the cell") from error


def _files_in(folder: EnginePath, prefix: str) -> Iterator[StoreEntry]:
    """Ordinary files, and those that no link leads to."""
    if engine_files.find(folder) is None:
        return
    for here, _, names, descriptor in engine_files.walk(folder):
        for name in names:
            with contextlib.suppress(FileNotFoundError):
                found = os.stat(name, dir_fd=descriptor, follow_symlinks=False)
                if stat.S_ISREG(found.st_mode):
                    yield StoreEntry(f"{PurePosixPath(prefix) / here / name}", found.st_size)
