"""`menagerie events tail`: what happens, a line for each event, as it happens."""

import json
import sys
from collections.abc import Iterator, Mapping
from typing import Annotated, Any, Final

import typer

from clients.cli.arguments import OrgOption, ProfileOption
from clients.cli.command_context import CommandContext, open_context
from clients.cli.completing import instance_names
from clients.cli.failures import INTERRUPTED
from clients.cli.groups import CommandApp
from clients.cli.output import cell, flattened, plain
from clients.errors import ClientError

KIND_WIDTH: Final = 26
WHICH_WIDTH: Final = 16

InstanceOption = Annotated[
    str | None,
    typer.Option(
        "--instance",
        help="Only events of this instance, by ID or name.",
        metavar="INSTANCE",
        autocompletion=instance_names,
    ),
]
TypesOption = Annotated[
    list[str] | None,
    typer.Option(
        "--types",
        help="Only these kinds: `instance.ready.v1`, `instance.*`. Repeatable, or with commas. "
        "`menagerie events kinds` lists them.",
        metavar="PATTERN",
    ),
]
SinceOption = Annotated[
    str | None,
    typer.Option(
        "--since",
        help="Begin after the event with this ID. Default: only new events.",
        metavar="ID",
    ),
]

app = CommandApp()


@app.command(
    "tail",
    epilog="\b\nExamples:\n  menagerie events tail\n"
    "  menagerie events tail --instance sales --types 'instance.*'\n"
    "  menagerie events tail --types 'backup.*,restore.*' --json | jq .data",
)
def tail(
    instance: InstanceOption = None,
    types: TypesOption = None,
    since: SinceOption = None,
    as_json: Annotated[
        bool,
        typer.Option("--json", help="Print each event as a line of JSON.", show_default=False),
    ] = False,
    org: OrgOption = None,
    profile: ProfileOption = None,
) -> None:
    """Show events as they happen: when, which kind, of what, and what the event says.

    If the connection ends, it is made again, and no event is missed or shown twice. Press Ctrl-C
    to stop; the exit code is then 130.
    """
    context = open_context(profile, org=org)
    lines = EventLines(context)
    with context.client:
        try:
            for data in events_of(context, instance, types, since):
                line = data if as_json else lines.line(data)
                typer.echo(line if as_json and not sys.stdout.isatty() else plain(line))
        except KeyboardInterrupt:
            raise typer.Exit(INTERRUPTED) from None


def events_of(
    context: CommandContext, instance: str | None, types: list[str] | None, since: str | None
) -> Iterator[str]:
    """Yield each event of the organization, or of the instance, as JSON, over disconnects."""
    from clients import following  # noqa: PLC0415  HTTP is slow to import, and --help needs none

    chosen = [each for one in types or () for each in one.split(",")]
    arguments: dict[str, Any] = dict(context.org())
    arguments |= {"types": chosen} if chosen else {}
    arguments |= {"last_event_id": since} if since else {}
    suffix = "/orgs/{org_id}/events"
    if instance is not None:
        suffix = "/instances/{instance_id}/events"
        arguments["instance_id"] = context.instance(instance)["id"]
    return following.follow(context.client, context.operation("GET", suffix), arguments)


class EventLines:
    """Events as people read them; the names of instances are looked up once."""

    def __init__(self, context: CommandContext) -> None:
        self._context = context
        self._names: dict[str, str] = {}

    def line(self, data: str) -> str:
        event = json.loads(data)
        told: Mapping[str, Any] = event["data"]
        instance_id = told.get("instance_id")
        which = self._name(instance_id) if isinstance(instance_id, str) else ""
        says = ", ".join(
            f"{name} {cell(name, value)}"
            for name, value in flattened(told)
            if name != "instance_id" and value not in (None, "", [])
        )
        when = cell("time", event["time"])
        kind = str(event["type"])
        # A text that somebody wrote begins no line of ours.
        says = " ".join(says.split())
        return f"{when}  {kind:<{KIND_WIDTH}}  {which:<{WHICH_WIDTH}}  {says}".rstrip()

    def _name(self, instance_id: str) -> str:
        if instance_id not in self._names:
            try:
                self._names[instance_id] = str(self._context.instance(instance_id)["name"])
            except ClientError:
                # Gone by now, or of no concern to whoever looks.
                self._names[instance_id] = instance_id
        return self._names[instance_id]
