"""`menagerie credentials`: an instance's username and password, fetched once from its cell."""

import hashlib
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from clients import private_files
from clients.cli.arguments import InstanceArgument, OrgOption, ProfileOption
from clients.cli.command_context import open_context
from clients.cli.groups import App
from clients.cli.lines import Place, clients_of, every_client, line
from clients.cli.output import Format, OutputOption, chosen, print_record, show
from clients.credentials import Credential, CredentialFile
from clients.errors import ConfigurationError
from clients.profiles import config_folder

if TYPE_CHECKING:
    from clients.endpoint import Endpoint

app = App()


def _complete_client(incomplete: str) -> list[str]:
    return [one for one in every_client() if one.startswith(incomplete)]


@app.command(epilog="Example: menagerie credentials sales")
def credentials(
    instance: InstanceArgument,
    rotate: Annotated[bool, typer.Option("--rotate", help="Create a new password first.")] = False,
    client: Annotated[
        str | None,
        typer.Option(
            "--client",
            help=f"Print only the line for this client: {', '.join(every_client())}.",
            metavar="CLIENT",
            autocompletion=_complete_client,
        ),
    ] = None,
    store: Annotated[
        bool,
        typer.Option(
            "--store",
            help="Also store the credential for `query` and `connect`.",
            show_default=False,
        ),
    ] = False,
    org: OrgOption = None,
    output: OutputOption = None,
    profile: ProfileOption = None,
) -> None:
    """Reveal an instance's credentials, with connection lines for its clients.

    They come straight from the cell that hosts the instance; the control plane never sees them.
    The lines contain the password, and can be pasted as they are on this machine: into a shell,
    Python or Node.js. With `--rotate`, the old password keeps working until `overlap_until`.
    `menagerie credentials reveal` and `menagerie credentials rotate` are the API operations.
    """
    from clients.cli import sql  # noqa: PLC0415  HTTP is slow to import, and --help needs none

    context = open_context(profile, org=org)
    with context.client:
        endpoint = sql.endpoint_of(context, instance)
        engine = endpoint.instance["engine"]
        _require_known(engine, client)
        credential = endpoint.rotate() if rotate else endpoint.reveal()
        if rotate:
            with sql.as_far_as_possible():
                CredentialFile().forget(context.client.base_url, endpoint.instance["id"])
        if store:
            with sql.as_far_as_possible():
                CredentialFile().keep(context.client.base_url, endpoint.instance["id"], credential)
        place = Place(engine, credential, authorities(endpoint, credential))
    if client is not None:
        typer.echo(line(client, place))
    else:
        _show(place, output)


def _require_known(engine: str, client: str | None) -> None:
    if client is None or client in clients_of(engine):
        return
    known = ", ".join(clients_of(engine)) or "none"
    raise ConfigurationError(f"{client} is not a client for {engine}; available: {known}")


def _show(place: Place, output: Format | None) -> None:
    record = {name: value for name, value in asdict(place.credential).items() if value is not None}
    if chosen(output) is not Format.table:
        show(record, output)
        return
    print_record(record)
    for client in clients_of(place.engine):
        typer.secho(f"\n{client}", bold=True)
        typer.echo(line(client, place))


def authorities(endpoint: "Endpoint", credential: Credential) -> str:
    """Answer a file with whom to trust for the instance, which lines can name and later find."""
    named = endpoint.client.ca_file
    if named is not None:
        return str(Path(named).expanduser().resolve())
    # By server: another one could name the same host, and authorities of its own for it.
    server = hashlib.sha256(endpoint.client.base_url.encode()).hexdigest()[:16]
    path = config_folder() / "authorities" / server / f"{credential.host}.pem"
    private_files.write(path, endpoint.ca_pem() or "")
    return str(path)
