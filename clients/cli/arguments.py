"""The arguments and options that client commands share, to be used as annotations."""

from typing import Annotated

import typer

from clients.cli.completing import instance_names

ProfileOption = Annotated[
    str | None,
    typer.Option("--profile", help="Use this profile.", metavar="NAME", rich_help_panel="Common"),
]
InstanceArgument = Annotated[
    str,
    typer.Argument(metavar="INSTANCE", help="Name or id.", autocompletion=instance_names),
]
OrgOption = Annotated[
    str | None,
    typer.Option(
        "--org", help="Org, by id or slug. [default: the profile's]", rich_help_panel="Common"
    ),
]
