"""The arguments and options that client commands share, to be used as annotations."""

from typing import Annotated

import typer

from clients.cli.completing import instance_names

ProfileOption = Annotated[
    str | None,
    typer.Option(
        "--profile",
        help="Profile, by name. Default: the active one.",
        metavar="NAME",
        rich_help_panel="Common",
    ),
]
InstanceArgument = Annotated[
    str,
    typer.Argument(
        metavar="INSTANCE", help="Instance, by ID or name.", autocompletion=instance_names
    ),
]
OrgOption = Annotated[
    str | None,
    typer.Option(
        "--org",
        help="Organization, by ID, name or slug. Default: the profile's.",
        metavar="ORG",
        rich_help_panel="Common",
    ),
]
