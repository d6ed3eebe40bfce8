"""Where the document comes from: a cached copy of the server's, else the one that was shipped.

A copy is JSON under the user's cache folder, one per server and one of what was shipped, because
reading that takes longer than a command should.
"""

import hashlib
import json
import os
import time
from collections.abc import Callable, Mapping
from contextvars import ContextVar
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from clients import private_files
from clients.document import Document
from clients.schemas import DocumentError

FRESH_S: Final = 600.0

# Answers (etag, document); document is None where the server says the copy is still good.
Fetch = Callable[[str | None], tuple[str | None, Mapping[str, Any] | None]]


def cache_folder(environ: Mapping[str, str] = os.environ) -> Path:
    base = environ.get("XDG_CACHE_HOME") or str(
        Path(environ.get("HOME", "~")).expanduser() / ".cache"
    )
    return Path(base) / "menagerie"


@dataclass(frozen=True)
class Shipped:
    """A document that came with this program; `stamp` changes whenever it does."""

    stamp: str
    read: Callable[[], Mapping[str, Any]]


# Set by a program that ships one: clients alone come without a server's.
SHIPPED: ContextVar[Shipped | None] = ContextVar("shipped", default=None)


@dataclass(frozen=True)
class _Kept:
    """A copy, made into a document once: that is what every command takes its time for."""

    document: Document
    etag: str | None
    fetched_at: float


@dataclass
class DocumentSource:
    """The document of one server, with its copies on disk."""

    base_url: str
    folder: Path
    shipped: Shipped | None = None

    @property
    def _copy(self) -> Path:
        name = hashlib.sha256(self.base_url.encode()).hexdigest()[:24]
        return self.folder / f"server-{name}.json"

    def at_hand(self) -> Document:
        """Answer the newest copy there is without asking anyone."""
        kept = self._kept()
        return kept.document if kept else self._shipped()

    def current(self, fetch: Fetch, *, even_if_fresh: bool = False) -> Document:
        """Answer the server's document; the copy at hand where the server cannot be asked."""
        kept = self._kept()
        if kept and not even_if_fresh and 0 <= time.time() - kept.fetched_at < FRESH_S:
            return kept.document
        try:
            etag, raw = fetch(kept.etag if kept else None)
        except Exception:  # noqa: BLE001  an unreachable server is reported by the command itself
            return kept.document if kept else self._shipped()
        document = kept.document.raw if kept and raw is None else raw
        if document is None or not _is_usable(document):
            return kept.document if kept else self._shipped()
        self._write(self._copy, {"etag": etag, "fetched_at": time.time(), "document": document})
        return Document(document)

    def _kept(self) -> "_Kept | None":
        """The copy of the server's, unless an earlier version kept what is of no use."""
        copy = self._read(self._copy)
        if copy is None:
            return None
        try:
            document = Document(copy["document"])
            usable = document.nouns is not None and isinstance(document.raw["paths"], Mapping)
            fetched_at = float(copy.get("fetched_at", 0))
            return _Kept(document, copy.get("etag"), fetched_at) if usable else None
        except Exception:  # noqa: BLE001  whatever it breaks, the shipped one will do
            return None

    def _shipped(self) -> Document:
        shipped = self.shipped or SHIPPED.get()
        if shipped is None:
            raise DocumentError("no copy of the server's openapi.json, and none was shipped")
        cached = self.folder / "shipped.json"
        copy = self._read(cached)
        if copy and copy.get("etag") == shipped.stamp:
            return Document(copy["document"])
        raw = shipped.read()
        self._write(cached, {"etag": shipped.stamp, "fetched_at": time.time(), "document": raw})
        return Document(raw)

    @staticmethod
    def _read(path: Path) -> dict[str, Any] | None:
        copy = private_files.read_json(path)
        return copy if isinstance(copy, dict) and isinstance(copy.get("document"), dict) else None

    @staticmethod
    def _write(path: Path, copy: Mapping[str, Any]) -> None:
        try:
            private_files.write(path, json.dumps(copy, separators=(",", ":"), default=str))
        except OSError:
            # A cache that cannot be written makes commands slower, and nothing else.
            return


def _is_usable(document: Mapping[str, Any]) -> bool:
    """Whether commands can be made of it: one that is kept stands in every command's way."""
    try:
        found = Document(document)
        is_read = all(one.fields is not None for one in found.operations.values())
        return is_read and found.nouns is not None and isinstance(document["paths"], Mapping)
    except Exception:  # noqa: BLE001  whatever it breaks, the copy at hand will do
        return False
