"""`menagerie connect`: the engine's own client where there is one, else a small one of ours."""

import os
import signal
import subprocess
import sys
from typing import TYPE_CHECKING

import typer

from clients.cli import native
from clients.cli.arguments import InstanceArgument, OrgOption, ProfileOption
from clients.cli.command_context import open_context
from clients.cli.dialects import DIALECTS
from clients.cli.groups import CommandApp
from clients.cli.output import plain
from clients.cli.query import StoreOption
from clients.errors import ConfigurationError
from clients.source import cache_folder

if TYPE_CHECKING:
    from clients.cli import sql

app = CommandApp()


@app.command(epilog="Example: menagerie connect sales")
def connect(
    instance: InstanceArgument,
    no_store: StoreOption = False,
    org: OrgOption = None,
    profile: ProfileOption = None,
) -> None:
    r"""Open a database client on an instance.

    Starts the engine's own client (psql, mariadb, valkey-cli, …), with the password in its
    environment and never among its arguments. For DuckDB, or if no such client is installed, a
    simple built-in client starts: statements end with `;`, `\q` quits, `\?` shows help.
    """
    from clients.cli import sql  # noqa: PLC0415  HTTP is slow to import, and --help needs none
    from clients.sessions import ENGINES  # noqa: PLC0415  see above

    context = open_context(profile, org=org)
    with context.client:
        endpoint = sql.endpoint_of(context, instance)
        engine = endpoint.instance["engine"]
        keeper = sql.Keeper(endpoint, store=not no_store)
        program = native.find(engine)
        if program is None and engine in ENGINES:
            _talk(keeper)
            return
        if program is None and engine not in native.PROGRAMS:
            raise ConfigurationError(
                f"{engine} has no client that runs in a terminal; `menagerie credentials "
                f"{instance}` prints lines for those that programs use"
            )
        if program is None:
            raise ConfigurationError(
                f"{engine} needs {native.wanted(engine)}, and none was found on the PATH"
            )
        credential, authorities = keeper.accepted(), endpoint.authorities()
    with authorities.as_file() as ca_file:
        code = _started(*native.command_line(program, credential, ca_file))
    raise typer.Exit(code)


def _started(arguments: list[str], environment: dict[str, str]) -> int:
    """Run the client to its end and answer its exit code. Ctrl-C is its business."""
    # A handler is not inherited, as SIG_IGN would be: the client has its own.
    before = signal.signal(signal.SIGINT, lambda *_: None)
    try:
        return subprocess.run(arguments, env={**os.environ, **environment}, check=False).returncode  # noqa: S603  a client found on PATH
    finally:
        signal.signal(signal.SIGINT, before)


def _talk(keeper: "sql.Keeper") -> None:
    """Run the small client over one session, renewed where its credential is refused."""
    from clients.cli.repl import Repl, line_editing  # noqa: PLC0415  see above

    name, engine = plain(keeper.endpoint.instance["name"]), keeper.endpoint.instance["engine"]
    with keeper, line_editing(cache_folder() / "history"):
        greeting = f"{name}, {keeper.version()}. \\? shows help, \\q quits."
        if engine in native.PROGRAMS:
            greeting += f" ({native.wanted(engine)} is not on the PATH.)"
        typer.echo(plain(greeting), err=True)
        Repl(name, keeper.query, _typed, DIALECTS[engine]).loop()


def _typed(prompt: str) -> str:
    # A prompt would stand among the rows where statements come from a file or a pipe.
    return input(prompt if sys.stdin.isatty() else "")
