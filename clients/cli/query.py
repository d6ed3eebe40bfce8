"""`menagerie query`: one statement on an instance."""

from typing import Annotated

import typer

from clients.cli import output as outputs
from clients.cli.arguments import InstanceArgument, OrgOption, ProfileOption
from clients.cli.command_context import open_context
from clients.cli.groups import App
from clients.cli.options import read_text

app = App()

StoreOption = Annotated[
    bool,
    typer.Option(
        "--no-store", help="Neither use nor store a credential on this machine.", show_default=False
    ),
]


@app.command(epilog="Example: menagerie query sales 'SELECT $1 + 1 AS n' --param 41")
def query(
    instance: InstanceArgument,
    statement: Annotated[
        str,
        typer.Argument(
            metavar="STATEMENT",
            help="SQL, or a Redis command; `@file` reads it from a file, `-` from stdin.",
        ),
    ],
    param: Annotated[
        list[str] | None,
        typer.Option("--param", help="Value of the next placeholder, as JSON or text. Repeatable."),
    ] = None,
    output: Annotated[
        outputs.Rows | None,
        typer.Option("--output", "-o", help="Output format. Default: table.", show_default=False),
    ] = None,
    no_store: StoreOption = False,
    org: OrgOption = None,
    profile: ProfileOption = None,
) -> None:
    """Run one statement on an instance, and show its rows or its reply.

    Placeholders for values are `$1`, `$2` and so on for PostgreSQL, `?` for MariaDB and MySQL,
    either for DuckDB, and words that are `?` for Redis and Valkey.

    The first query reveals the instance's credential and stores it in `credentials.json` in the
    configuration folder (mode 0600). With `--no-store` it is revealed again and not stored.
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
