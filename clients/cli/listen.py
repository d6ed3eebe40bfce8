"""`menagerie webhooks listen`: events as webhooks, to a receiver on the developer's machine."""

from typing import TYPE_CHECKING, Annotated

import typer

from clients import webhook_signing
from clients.cli import options
from clients.cli.arguments import OrgOption, ProfileOption
from clients.cli.command_context import open_context
from clients.cli.failures import INTERRUPTED
from clients.cli.groups import CommandApp
from clients.cli.output import cell, plain
from clients.cli.tail import KIND_WIDTH, InstanceOption, SinceOption, TypesOption, events_of

if TYPE_CHECKING:
    from clients.forwarding import ForwardedEvent

app = CommandApp()


@app.command(
    "listen",
    epilog="\b\nExamples:\n  menagerie webhooks listen --forward-to http://localhost:3000/hook\n"
    "  menagerie webhooks listen --forward-to http://localhost:3000/hook --types 'instance.*'\n"
    "  menagerie webhooks listen --forward-to http://localhost:3000/hook --secret @secret.txt",
)
def listen(
    forward_to: Annotated[
        str,
        typer.Option("--forward-to", help="Where events are sent, http or https.", metavar="URL"),
    ],
    instance: InstanceOption = None,
    types: TypesOption = None,
    since: SinceOption = None,
    secret: Annotated[
        str | None,
        typer.Option(
            "--secret",
            help=f"Sign with this secret (`whsec_…`); {options.FROM_FILE}. "
            "Default: a new one, which is shown.",
            metavar="SECRET",
        ),
    ] = None,
    org: OrgOption = None,
    profile: ProfileOption = None,
) -> None:
    """Forward events as they happen to a receiver that you develop, signed as webhooks are.

    No webhook endpoint is needed. A line is shown for each event, with the status of the response.
    Each event is sent once: an event that failed is not sent again. If the connection to the
    service ends, it is made again, and no event is missed. Press Ctrl-C to stop; the exit code is
    then 130.
    """
    from clients import forwarding  # noqa: PLC0415  HTTP is slow to import, and --help needs none

    chosen = webhook_signing.new_secret() if secret is None else _given(secret)
    with forwarding.Forwarder(forward_to, chosen) as forwarder:
        context = open_context(profile, org=org)
        if secret is None:
            typer.echo(f"signing secret: {chosen}")
        with context.client:
            try:
                for data in events_of(context, instance, types, since):
                    typer.echo(plain(line(forwarder.forward(data))))
            except KeyboardInterrupt:
                raise typer.Exit(INTERRUPTED) from None


def line(attempt: "ForwardedEvent") -> str:
    came = attempt.error or str(attempt.status)
    # A text of the server begins no line of ours.
    kind = " ".join(attempt.kind.split())
    when = cell("time", attempt.time)
    return f"{when}  {kind:<{KIND_WIDTH}}  → {came} ({attempt.duration_ms} ms)"


def _given(secret: str) -> str:
    text = options.read_text(secret, "--secret").strip()
    try:
        webhook_signing.key_of(text)
    except ValueError as error:
        raise typer.BadParameter(str(error), param_hint="--secret") from error
    return text
