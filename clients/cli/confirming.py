"""Asking before what cannot be undone: the name typed, or `--yes`; nothing is sent without."""

import sys
from typing import Annotated, Final

import typer

from clients.cli.output import plain
from clients.errors import ConfigurationError

FLAGS: Final = ("--yes", "-y")
YesOption = Annotated[
    bool,
    typer.Option(*FLAGS, help="Do not ask for confirmation.", show_default=False),
]


def require_answerable(what: str, *, yes: bool) -> None:
    """Raise where nobody can be asked: a script says `--yes`, or nothing is done."""
    if not yes and not sys.stdin.isatty():
        raise ConfigurationError(
            f"`{what}` needs confirmation, but there is no terminal to ask on: nothing was sent; "
            "add --yes to skip the question"
        )


def ask(name: str, loss: str, *, yes: bool) -> None:
    """Ask for the name to be typed; anything else ends the command with nothing sent."""
    if yes:
        return
    typer.echo(plain(loss), err=True)
    typed = typer.prompt(
        f"To continue, type {plain(name)}", default="", show_default=False, err=True
    )
    if typed.strip() != name:
        raise ConfigurationError(
            f"you typed {typed.strip()!r} instead of {name!r}: nothing was done; try again"
        )
