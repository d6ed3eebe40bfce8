"""`menagerie console open`: the SQL console of an instance, in a browser."""

import os
import sys
import webbrowser
from typing import Annotated

import typer

from clients.cli.arguments import InstanceArgument, OrgOption, ProfileOption
from clients.cli.command_context import open_context
from clients.cli.groups import App
from clients.cli.output import Format, OutputOption, chosen, plain, show

app = App()


@app.command("open", epilog="Example: menagerie console open sales")
def console(
    instance: InstanceArgument,
    no_browser: Annotated[
        bool,
        typer.Option(
            "--no-browser", help="Print the URL instead of opening it.", show_default=False
        ),
    ] = False,
    org: OrgOption = None,
    output: OutputOption = None,
    profile: ProfileOption = None,
) -> None:
    """Open the SQL console of an instance in your browser.

    The URL works once, within one minute; until then, keep it as secret as a password. It is
    printed instead with `--no-browser`, if there is no browser, or if the output is not a terminal.

    Needs the permission `console:open`, and the second factor if revealing a credential needs it.
    """
    context = open_context(profile, org=org)
    with context.client:
        operation = context.operation("POST", "/console-sessions")
        instance_id = context.instance(instance)["id"]
        answer = context.client.send(operation, {**context.org(), "instance_id": instance_id}).body
    if chosen(output) is not Format.table:
        show(answer, output)
        return
    url = str(answer["url"])
    if not no_browser and opened(url):
        typer.echo(f"opened the SQL console of {instance} in your browser", err=True)
    else:
        typer.echo("open this URL in a browser within one minute; it works once:", err=True)
        typer.echo(plain(url))


def opened(url: str) -> bool:
    """Whether a browser took it; what a server answers must not start anything else."""
    is_page = url.startswith(("https://", "http://"))
    return is_page and is_seen() and has_window() and webbrowser.open(url)


def is_seen() -> bool:
    """Whether somebody looks on, rather than a program that wants the URL."""
    return sys.stdout.isatty()


def has_window() -> bool:
    """Whether there is one to open a browser in: those of terminals run no console."""
    if sys.platform in {"darwin", "win32"} or os.environ.get("BROWSER"):
        return True
    return any(os.environ.get(name) for name in ("DISPLAY", "WAYLAND_DISPLAY"))
