"""`menagerie migrate`: data from a file or a running server into an instance, in one command."""

import os
import sys
from enum import StrEnum
from getpass import getpass
from pathlib import Path
from typing import Annotated, Any, Final

import typer

from clients.cli import table_files
from clients.cli.arguments import OrgOption, ProfileOption
from clients.cli.command_context import open_context
from clients.cli.completing import instance_names
from clients.cli.groups import CommandApp
from clients.cli.output import OutputOption, show
from clients.errors import ConfigurationError

STDIN: Final = "-"
VARIABLE: Final = "MENAGERIE_SOURCE_URI"
_HOW: Final = (
    "say where the data comes from: --from-file FILE, --from-uri - (the URI is read from stdin, or"
    f" asked for), or the URI in {VARIABLE}"
)
_WHERE: Final = (
    "say which instance the data is for: menagerie migrate INSTANCE; the command that upgrades the"
    " service's own database is menagerie upgrade-database"
)

app = CommandApp()


class Tls(StrEnum):
    """What --source-tls takes."""

    verify = "verify"
    require = "require"
    off = "off"


@app.command(epilog="Example: menagerie migrate sales --from-uri - --dry-run")
def migrate(
    instance: Annotated[
        str | None,
        typer.Argument(
            metavar="INSTANCE",
            help="Instance, by ID or name.",
            autocompletion=instance_names,
            show_default=False,
        ),
    ] = None,
    from_file: Annotated[
        Path | None,
        typer.Option("--from-file", metavar="FILE", help="File to send.", show_default=False),
    ] = None,
    from_uri: Annotated[
        str | None,
        typer.Option(
            "--from-uri",
            metavar="URI",
            help=f"Server to connect to, such as mariadb://user:password@host/shop; `-` reads it"
            f" from stdin or asks. Others on this machine can see a URI given here, with its"
            f" password: use `-`, or {VARIABLE}.",
            show_default=False,
        ),
    ] = None,
    file_format: Annotated[
        str | None,
        typer.Option(
            "--format",
            metavar="FORMAT",
            help="With --from-file: what it is, such as rdb. Default: by its name or its content.",
            show_default=False,
        ),
    ] = None,
    table: Annotated[
        str | None,
        typer.Option(
            "--table",
            metavar="NAME",
            help="With a CSV or Parquet file: the table it becomes. Default: the file's name.",
            show_default=False,
        ),
    ] = None,
    sync: Annotated[
        bool,
        typer.Option(
            "--sync", help="Follow the server's changes until the cutover.", show_default=False
        ),
    ] = False,
    dry_run: Annotated[
        bool,
        typer.Option(
            "--dry-run", help="Check the source and report; change nothing.", show_default=False
        ),
    ] = False,
    source_ca: Annotated[
        Path | None,
        typer.Option(
            "--source-ca",
            metavar="FILE",
            help="CAs, in PEM, that issued the server's certificate. Default: the cell's system's.",
            show_default=False,
        ),
    ] = None,
    source_tls: Annotated[
        Tls, typer.Option("--source-tls", help="How the cell connects to the server.")
    ] = Tls.verify,
    resume: Annotated[
        str | None,
        typer.Option(
            "--resume",
            metavar="MIGRATION",
            help="Go on sending the source of this migration, by ID.",
            show_default=False,
        ),
    ] = None,
    wait: Annotated[
        bool,
        typer.Option(
            "--wait",
            help="Wait, with progress, until it is completed; with --sync, until it is syncing.",
            show_default=False,
        ),
    ] = False,
    org: OrgOption = None,
    output: OutputOption = None,
    profile: ProfileOption = None,
) -> None:
    """Migrate data into an instance, from a file or from a running server.

    The source goes straight to the cell that hosts the instance: the control plane never sees the
    URI or the file. The cell checks the source first and changes nothing if something would go
    wrong. `menagerie migrations cutover` ends what --sync began, and `menagerie migrations cancel`
    any migration.
    """
    from clients.cli import migration_steps as steps  # noqa: PLC0415  HTTP is slow to import
    from clients.migrating import TargetEndpoint  # noqa: PLC0415  see above

    if instance is None:
        raise ConfigurationError(_WHERE)
    connection = _connection(from_file, from_uri, source_ca, source_tls)
    _refuse(from_file, file_format, table, sync=sync)
    context = open_context(profile, org=org)
    with context.client:
        found = context.instance(instance)
        target = TargetEndpoint(context.client, found, org=context.org())
        wanted: dict[str, Any] = {"source": {"kind": "connection"}}
        if from_file is not None:
            described = table_files.source(from_file, file_format, table)
            wanted = {"source": {"kind": "upload", **described}}
        wanted |= {"mode": "copy_and_sync" if sync else "copy", "dry_run": dry_run}
        made = {"id": resume} if resume is not None else target.start(**wanted)
        steps.send(target, made, from_file, connection)
        until = "syncing" if sync and not dry_run else "completed"
        seen = steps.follow(target, made["id"], until if wait else None)
    show(seen, output)
    steps.conclude(target, seen, until if wait else None)


def _connection(
    file: Path | None, uri: str | None, ca: Path | None, tls: Tls
) -> dict[str, Any] | None:
    """What the cell needs to connect to the server; None where the data comes as a file."""
    if file is not None:
        if uri is not None:
            raise ConfigurationError("--from-file and --from-uri exclude each other; give one")
        return None
    given = os.environ.get(VARIABLE) if uri is None else uri
    if given is None:
        raise ConfigurationError(_HOW)
    told = {"uri": _read_uri() if given == STDIN else given, "tls": tls.value}
    return told if ca is None else {**told, "ca_pem": _read(ca)}


def _read_uri() -> str:
    asked = getpass("URI of the source: ") if sys.stdin.isatty() else sys.stdin.readline()
    if not asked.strip():
        raise ConfigurationError(f"no URI was given; {_HOW}")
    return asked.strip()


def _read(file: Path) -> str:
    try:
        return file.read_text(encoding="ascii")
    except (OSError, ValueError) as error:
        raise ConfigurationError(f"cannot read certificates from {file}: {error}") from error


def _refuse(file: Path | None, file_format: str | None, table: str | None, *, sync: bool) -> None:
    """Before anything is asked of anybody."""
    if file is None:
        for option, given in (("--format", file_format), ("--table", table)):
            if given is not None:
                raise ConfigurationError(f"{option} is for --from-file: a server needs none")
        return
    if sync:
        raise ConfigurationError("--sync is for a running server: a file does not change")
    if not file.is_file():
        raise ConfigurationError(f"{file} is not a file; choose one that can be read")
    if file.stat().st_size == 0:
        raise ConfigurationError(f"{file} is empty; choose a file with data")
