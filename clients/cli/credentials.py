"""`menagerie credentials`: an instance's username and password, fetched once from its cell."""

from dataclasses import asdict
from typing import Annotated

import typer

from clients.cli import native, sql
from clients.cli.desk import OrgOption, ProfileOption, open_desk
from clients.cli.output import Format, OutputOption, chosen, print_record, show
from clients.credentials import Credential, CredentialFile
from clients.hosts import LOOPBACK, is_local

app = typer.Typer(add_completion=False, rich_markup_mode="markdown")


@app.command(epilog="Example: `menagerie credentials sales`")
def credentials(
    instance: Annotated[str, typer.Argument(metavar="INSTANCE", help="Name or id.")],
    rotate: Annotated[bool, typer.Option("--rotate", help="Make a new password first.")] = False,
    store: Annotated[
        bool,
        typer.Option("--store", help="Keep it for `query` and `connect` too.", show_default=False),
    ] = False,
    org: OrgOption = None,
    output: OutputOption = None,
    profile: ProfileOption = None,
) -> None:
    """Reveal an instance's credentials and print them, this once.

    They come straight from the cell that hosts the instance; the control plane never sees them.
    With `--rotate` the old password keeps working until `overlap_until`. `menagerie credentials
    reveal` and `menagerie credentials rotate` are the two API operations themselves.
    """
    desk = open_desk(profile, org=org)
    with desk.client:
        endpoint = sql.endpoint_of(desk, instance)
        credential = endpoint.rotate() if rotate else endpoint.reveal()
        if rotate:
            CredentialFile().forget(desk.client.base_url, endpoint.instance["id"])
        if store:
            CredentialFile().keep(desk.client.base_url, endpoint.instance["id"], credential)
    record = {name: value for name, value in asdict(credential).items() if value is not None}
    if chosen(output) is not Format.table:
        show(record, output)
        return
    print_record(record)
    line = opening_line(endpoint.instance["engine"], credential, desk.client.ca_file)
    if line is not None:
        typer.echo(f"\n{line}")


def opening_line(engine: str, credential: Credential, ca_file: str | None) -> str | None:
    """Answer a line for a shell that asks for the password; None where no client is known."""
    if engine == "duckdb":
        return curl_line(credential, ca_file)
    return native.shell_line(engine, credential, ca_file)


def curl_line(credential: Credential, ca_file: str | None, password: str | None = None) -> str:
    """Answer a query by curl, which asks for the password unless a variable is given for it."""
    user = credential.username + (f':"{password}"' if password else "")
    ca = f" --cacert {ca_file}" if ca_file else ""
    resolve = (
        f" --resolve {credential.host}:{credential.port}:{LOOPBACK}"
        if is_local(credential.host)
        else ""
    )
    return (
        f"curl{ca}{resolve} -u {user} {credential.base_url}/query \\\n"
        f"  -H 'Content-Type: application/json' -d '{{\"sql\": \"SELECT 42 AS answer\"}}'"
    )
