"""`menagerie logs`: the engine log of an instance, as its cell streams it."""

import sys
from typing import Annotated

import typer

from clients.cli.desk import OrgOption, ProfileOption, open_desk
from clients.cli.groups import PLAIN
from clients.cli.output import plain

app = typer.Typer(**PLAIN)


@app.command(epilog="Example: menagerie logs sales | grep -i error")
def logs(
    instance: Annotated[str, typer.Argument(metavar="INSTANCE", help="Name or id.")],
    org: OrgOption = None,
    profile: ProfileOption = None,
) -> None:
    """Stream the engine logs of an instance."""
    from clients.cli import sql  # noqa: PLC0415  HTTP is slow to import, and --help needs none

    desk = open_desk(profile, org=org)
    said = False
    with desk.client:
        for part in sql.endpoint_of(desk, instance).logs():
            typer.echo(plain(part) if sys.stdout.isatty() else part, nl=False)
            said = said or bool(part)
    if not said:
        typer.echo(f"{instance} has logged nothing since it was made", err=True)
