"""Where a command writes what it receives: stdout, or a file that appears once it is whole."""

import os
import secrets
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Annotated, Final

import typer

from clients.errors import ConfigurationError

STDOUT: Final = "-"
ForceOption = Annotated[
    bool, typer.Option("--force", help="Overwrite FILE if it exists.", show_default=False)
]


def check(target: Path | None, *, force: bool, binary: bool) -> None:
    """Raise ConfigurationError for what cannot be written, before anything is asked of anybody."""
    if target is None:
        if binary and sys.stdout.isatty():
            raise ConfigurationError(
                "an archive cannot be written to a terminal; specify a FILE or use a pipe"
            )
        return
    if target.is_dir() or not target.parent.is_dir():
        raise ConfigurationError(f"{target} is a folder, or its folder does not exist")
    if target.exists() and not force:
        raise ConfigurationError(f"{target} already exists; --force overwrites it")


@contextmanager
def opened(target: Path | None, *, force: bool) -> Iterator[IO[bytes]]:
    """What is written takes the file's name once it is whole; None is stdout."""
    if target is None:
        yield sys.stdout.buffer
        return
    draft = target.with_name(f".{target.name}.{secrets.token_hex(6)}")
    descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        with os.fdopen(descriptor, "wb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        if not force and target.exists():
            raise ConfigurationError(f"{target} was created in the meantime; --force overwrites it")
        draft.replace(target)
    finally:
        draft.unlink(missing_ok=True)


def write(chunks: Iterable[bytes], target: Path | None, *, force: bool) -> None:
    """All of them; a file only where they came to their end."""
    from clients.cli.copying import Progress  # noqa: PLC0415  slow, and --help needs none

    progress = Progress("wrote")
    with opened(target, force=force) as output:
        for chunk in chunks:
            output.write(chunk)
            progress.count(len(chunk))
        output.flush()
    progress.end(str(target or "stdout"))
