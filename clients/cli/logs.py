"""`menagerie logs`: the engine log of an instance, as its cell streams it."""

import sys
from typing import Annotated

import typer

from clients.cli.arguments import InstanceArgument, OrgOption, ProfileOption
from clients.cli.command_context import open_context
from clients.cli.groups import App
from clients.cli.output import plain

app = App()


@app.command(epilog="Example: menagerie logs sales --follow")
def logs(
    instance: InstanceArgument,
    follow: Annotated[
        bool,
        typer.Option("--follow", "-f", help="Keep showing new lines.", show_default=False),
    ] = False,
    tail: Annotated[
        int | None,
        typer.Option(
            "--tail",
            min=0,
            max=10_000,
            metavar="LINES",
            show_default=False,
            help="Number of existing lines to start with. Default: 200.",
        ),
    ] = None,
    org: OrgOption = None,
    profile: ProfileOption = None,
) -> None:
    """Show the end of an instance's engine log and, with --follow, each new line.

    Press Ctrl-C to stop.
    """
    from clients.cli import sql  # noqa: PLC0415  HTTP is slow to import, and --help needs none

    context = open_context(profile, org=org)
    said = False
    with context.client:
        for part in sql.endpoint_of(context, instance).logs(follow=follow, tail_lines=tail):
            typer.echo(plain(part) if sys.stdout.isatty() else part, nl=False)
            said = said or bool(part)
    if not said:
        typer.echo(f"{instance} has not logged anything yet", err=True)
