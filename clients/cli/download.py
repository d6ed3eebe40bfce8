"""`menagerie backups download`: the content of a backup, as its cell decrypts it."""

from pathlib import Path
from typing import Annotated

import typer

from clients.cli import targets
from clients.cli.arguments import InstanceArgument, OrgOption, ProfileOption
from clients.cli.command_context import open_context
from clients.cli.groups import CommandApp
from clients.cli.targets import ForceOption

app = CommandApp()


@app.command(
    "download", epilog="Example: menagerie backups download sales bkp_01JD… > sales.tar.zst"
)
def download(
    instance: InstanceArgument,
    backup: Annotated[
        str, typer.Argument(metavar="BACKUP", help="Backup, by ID; `backups list` shows it.")
    ],
    file: Annotated[
        str | None,
        typer.Argument(
            metavar="FILE",
            help="File to write; `-` is stdout, the default.",
            show_default=False,
        ),
    ] = None,
    force: ForceOption = False,
    org: OrgOption = None,
    profile: ProfileOption = None,
) -> None:
    """Write the content of a backup to a file: a tar archive, compressed with zstd.

    It contains the engine's files. A FILE appears when the archive is complete, and only you can
    read it; with stdout, check that the exit status is 0.

    Needs the permission `data:export`, and the second factor if revealing a credential needs it.
    """
    from clients.cli import sql  # noqa: PLC0415  HTTP is slow to import, and --help needs none

    target = None if file in {None, targets.STDOUT} else Path(str(file))
    targets.check(target, force=force, binary=True)
    context = open_context(profile, org=org)
    with context.client:
        endpoint = sql.endpoint_of(context, instance)
        targets.write(endpoint.download(backup), target, force=force)
