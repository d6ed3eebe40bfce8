"""`menagerie query`: one statement on an instance."""

from typing import Annotated

import typer

from clients.cli import output as outputs
from clients.cli.arguments import InstanceArgument, OrgOption, ProfileOption
from clients.cli.command_context import open_context
from clients.cli.groups import PLAIN
from clients.cli.options import read_text

app = typer.Typer(**PLAIN)

StoreOption = Annotated[
    bool,
    typer.Option(
        "--no-store", help="Neither use nor keep a stored credential.", show_default=False
    ),
]


@app.command(epilog="Example: menagerie query sales 'SELECT $1 + 1 AS n' --param 41")
def query(
    instance: InstanceArgument,
    statement: Annotated[
        str,
        typer.Argument(
            metavar="STATEMENT",
            help="SQL, or a command of Redis; `@file` reads it from a file, `-` from stdin.",
        ),
    ],
    param: Annotated[
        list[str] | None,
        typer.Option("--param", help="A value for the next placeholder, as JSON or text."),
    ] = None,
    output: Annotated[
        outputs.Rows | None,
        typer.Option(
            "--output", "-o", help="How to show the rows. Default: table.", show_default=False
        ),
    ] = None,
    no_store: StoreOption = False,
    org: OrgOption = None,
    profile: ProfileOption = None,
) -> None:
    """Run one statement on an instance, and show its rows or its reply.

    Values stand for `$1` in PostgreSQL's SQL, for `?` in MariaDB's and MySQL's, for either in
    DuckDB's, and for words that are `?` in a command of Redis or Valkey.

    The first query reveals the instance's credential and keeps it in `credentials.json` of the
    configuration folder (mode 0600); `--no-store` reveals it anew and keeps nothing.
    """
    from clients.cli import sql  # noqa: PLC0415  HTTP is slow to import, and --help needs none

    context = open_context(profile, org=org)
    with context.client:
        endpoint = sql.endpoint_of(context, instance)
        sql.require_session(endpoint)
        text = read_text(statement, "STATEMENT")
        with sql.Keeper(endpoint, store=not no_store) as keeper:
            result = keeper.query(text, [sql.parameter(one) for one in param or ()])
    sql.show(result, outputs.chosen_rows(output))
