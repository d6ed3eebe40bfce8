"""Files that only their owner may read, written whole or not at all."""

import json
import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

try:
    import fcntl
except ImportError:  # pragma: no cover - Windows has no flock; the last writer wins there
    fcntl = None  # type: ignore[assignment]


def make_folder(path: Path) -> None:
    """Make it, and each folder above it that is missing, of mode 0700 whatever the umask.

    `mkdir(parents=True)` gives the mode to the last one alone.
    """
    try:
        path.mkdir(mode=0o700, exist_ok=True)
    except FileNotFoundError:
        if path.parent == path:
            raise
        make_folder(path.parent)
        path.mkdir(mode=0o700, exist_ok=True)


def write(path: Path, text: str) -> None:
    """Replace the file by one of mode 0600; a reader sees the old text or the new, never half."""
    make_folder(path.parent)
    draft = path.with_name(f".{path.name}.{secrets.token_hex(6)}")
    descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        with os.fdopen(descriptor, "w", encoding="utf-8") as file:
            file.write(text)
        draft.replace(path)
    except BaseException:
        draft.unlink(missing_ok=True)
        raise


def read_json(path: Path) -> Any:
    """Answer what the file holds; None where there is none or it is not JSON."""
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):
        return None


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """Hold the file's lock, so two commands that change it at once both count."""
    make_folder(path.parent)
    lock = os.open(path.with_name(f".{path.name}.lock"), os.O_RDWR | os.O_CREAT, 0o600)
    try:
        if fcntl is not None:
            fcntl.flock(lock, fcntl.LOCK_EX)
        yield
    finally:
        os.close(lock)
