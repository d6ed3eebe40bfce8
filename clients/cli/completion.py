"""`menagerie completion`: shell completion, shown or installed."""

import os
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer
from typer.completion import (  # type: ignore[attr-defined]  # public, not re-exported by name
    get_completion_script,
)
from typer.completion import (  # type: ignore[attr-defined]  # as above
    install as install_script,
)

from clients.cli.groups import CommandApp, CommandGroup
from clients.errors import ConfigurationError

PROGRAM = "menagerie"
COMPLETE_VAR = "_MENAGERIE_COMPLETE"

app = CommandApp(cls=CommandGroup, no_args_is_help=True, help="Show or install shell completion.")


class Shell(StrEnum):
    """The shells there is a script for."""

    bash = "bash"
    zsh = "zsh"
    fish = "fish"


ShellArgument = Annotated[
    Shell | None,
    typer.Argument(metavar="SHELL", help=f"{', '.join(Shell)}. Default: detected from $SHELL."),
]


@app.command("show", epilog="Example: menagerie completion show bash > ~/.menagerie-completion.sh")
def show(shell: ShellArgument = None) -> None:
    """Print the completion script."""
    chosen = _chosen(shell)
    typer.echo(get_completion_script(prog_name=PROGRAM, complete_var=COMPLETE_VAR, shell=chosen))


@app.command("install", epilog="Example: menagerie completion install zsh")
def install(shell: ShellArgument = None) -> None:
    """Install the completion script for your shell. It works in new shells."""
    chosen, path = install_script(
        shell=_chosen(shell), prog_name=PROGRAM, complete_var=COMPLETE_VAR
    )
    typer.echo(f"{chosen} completion installed in {path}", err=True)


def _chosen(shell: Shell | None) -> str:
    name = shell or Path(os.environ.get("SHELL", "")).name
    if name not in list(Shell):
        raise ConfigurationError(
            f"cannot tell the shell from $SHELL; name one of {', '.join(Shell)}"
        )
    return str(name)
