"""`menagerie webhooks listen`: an organization's events, forwarded to a port of this machine."""

import sys
from typing import Annotated

import typer

from clients.cli.arguments import OrgOption, ProfileOption
from clients.cli.command_context import open_context
from clients.cli.groups import CommandApp
from clients.cli.output import plain

app = CommandApp()


@app.command(
    epilog="Example: menagerie webhooks listen --forward-to http://localhost:3000/hook"
    " --events 'instance.*'"
)
def listen(
    forward_to: Annotated[
        str,
        typer.Option("--forward-to", metavar="URL", help="Where events are sent, on this machine."),
    ],
    events: Annotated[
        list[str] | None,
        typer.Option(
            "--events",
            metavar="PATTERN",
            show_default=False,
            help="Kind of events, or a pattern such as instance.*; can be repeated. Default: all.",
        ),
    ] = None,
    org: OrgOption = None,
    profile: ProfileOption = None,
) -> None:
    """Forward events as they happen to a port of this machine, for development.

    Each is signed with the secret that is shown first, as webhooks are. What comes back is shown;
    nothing is sent again. Press Ctrl-C to stop.
    """
    from clients import following, forwarding  # noqa: PLC0415  HTTP is slow to import

    forwarder = forwarding.Forwarder(forward_to, events or ())
    context = open_context(profile, org=org)
    with context.client:
        typer.echo(f"secret: {forwarder.secret}")
        operation = context.client.operation("events.follow")
        for data in following.follow(context.client, operation, context.org()):
            line = forwarder.forward(data)
            if line is not None:
                typer.echo(plain(line) if sys.stdout.isatty() else line)
