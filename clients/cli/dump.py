"""`menagerie dump`: everything of a PostgreSQL instance's database in one file."""

import os
import secrets
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from enum import StrEnum
from pathlib import Path
from typing import IO, Annotated, Final

import typer

from clients.cli.arguments import InstanceArgument, OrgOption, ProfileOption
from clients.cli.command_context import open_context
from clients.cli.groups import App
from clients.cli.query import StoreOption
from clients.errors import ConfigurationError

STDOUT: Final = "-"

app = App()


class Form(StrEnum):
    """What --format takes: an archive of pg_dump, compressed, or SQL."""

    custom = "custom"
    plain = "plain"


@app.command(epilog="Example: menagerie dump sales sales.dump")
def dump(
    instance: InstanceArgument,
    file: Annotated[
        str | None,
        typer.Argument(
            metavar="FILE",
            help="File to write; `-` is stdout. Default: INSTANCE.dump.",
            show_default=False,
        ),
    ] = None,
    form: Annotated[
        Form | None,
        typer.Option(
            "--format",
            help="Archive format. Default: plain for *.sql and stdout, otherwise custom.",
            show_default=False,
        ),
    ] = None,
    force: Annotated[
        bool, typer.Option("--force", help="Overwrite FILE if it exists.", show_default=False)
    ] = False,
    owners: Annotated[
        bool,
        typer.Option("--owners", help="Include owners and privileges.", show_default=False),
    ] = False,
    no_store: StoreOption = False,
    org: OrgOption = None,
    profile: ProfileOption = None,
) -> None:
    """Write the database of a PostgreSQL instance to a file, as a consistent snapshot.

    Runs a pg_dump that is at least as new as the server; one comes with Menagerie. The file
    appears when the dump is complete, and only you can read it. `menagerie load` restores it.
    """  # fmt: skip
    from clients.cli import copying  # noqa: PLC0415  HTTP is slow to import, and --help needs none

    target = Path(file) if file is not None and file != STDOUT else None
    if file is None:
        target = Path(f"{instance}.dump")
    chosen = form or _form_of(target)
    _refuse(target, chosen, force=force)
    context = open_context(profile, org=org)
    with context.client, copying.opened_target(context, instance, store=not no_store) as server:
        words = [server.program("pg_dump"), f"--format={chosen}", "--no-password"]
        if not owners:
            words += ["--no-owner", "--no-privileges"]
        progress = copying.Progress("wrote")
        with (
            _opened(target, force=force) as output,
            copying.started(words, server, stdout=subprocess.PIPE) as process,
        ):
            assert process.stdout is not None
            copying.copy(process.stdout, output, progress)
        progress.end(str(target or "stdout"))


def _form_of(target: Path | None) -> Form:
    return Form.plain if target is None or target.suffix == ".sql" else Form.custom


def _refuse(target: Path | None, form: Form, *, force: bool) -> None:
    """Before anything is asked of anybody."""
    if target is None:
        if form is Form.custom and sys.stdout.isatty():
            raise ConfigurationError(
                "an archive cannot be written to a terminal; specify a FILE or use a pipe"
            )
        return
    if target.is_dir() or not target.parent.is_dir():
        raise ConfigurationError(f"{target} is a folder, or its folder does not exist")
    if target.exists() and not force:
        raise ConfigurationError(f"{target} already exists; --force overwrites it")


@contextmanager
def _opened(target: Path | None, *, force: bool) -> Iterator[IO[bytes]]:
    """What is written takes the file's name once it is whole."""
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
