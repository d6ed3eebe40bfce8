"""`menagerie demo`: the README's walk, done by itself, with the shell's line for each step."""

import json
import secrets
import shlex
from enum import StrEnum
from typing import Annotated, Any, Final

import typer

from clients.cli import native
from clients.cli.arguments import ProfileOption
from clients.cli.command_context import CommandContext, open_context
from clients.cli.credentials import authorities
from clients.cli.groups import App
from clients.cli.lines import Place
from clients.cli.lines import curl as curl_query
from clients.cli.output import Rows, plain
from clients.cli.progress import waiting
from clients.document import Operation
from clients.errors import ConfigurationError

app = App()


class DemoEngine(StrEnum):
    """The engines the demo can walk with."""

    duckdb = "duckdb"
    postgres = "postgres"
    mariadb = "mariadb"
    mysql = "mysql"
    redis = "redis"
    valkey = "valkey"


# In words that every SQL engine here knows.
SQL: Final = (
    "CREATE TABLE animals (name VARCHAR(20), legs INTEGER, weight_kg DOUBLE PRECISION)",
    "INSERT INTO animals VALUES ('duck', 2, 1.1), ('elephant', 4, 5400), ('dolphin', 0, 200)",
    "SELECT name, legs, weight_kg FROM animals ORDER BY weight_kg DESC",
)
COMMANDS: Final = (
    "HSET elephant legs 4 weight_kg 5400",
    "HGETALL elephant",
)
STATEMENTS: Final = {DemoEngine.redis: COMMANDS, DemoEngine.valkey: COMMANDS}


@app.command(epilog="Example: menagerie demo --engine postgres --keep")
def demo(
    engine: Annotated[
        DemoEngine, typer.Option("--engine", help="The engine to use.")
    ] = DemoEngine.duckdb,
    keep: Annotated[bool, typer.Option("--keep", help="Do not delete the instance.")] = False,
    profile: ProfileOption = None,
) -> None:
    """Create an instance, query it and delete it, step by step.

    Each step shows a shell command that does the same with curl or the engine's own client. These
    commands read the API key from `$MENAGERIE_API_KEY` and the instance's password from
    `$PASSWORD`.
    """
    context = open_context(profile)
    with context.client:
        _require_available(context, engine)
        instance = _create(context, engine)
        try:
            _walk(context, instance)
        finally:
            if keep:
                line = shlex.join(["menagerie", "connect", instance["name"]])
                typer.echo(plain(f"\nkept: {line}"), err=True)
            else:
                _delete(context, instance)


def _require_available(context: CommandContext, engine: DemoEngine) -> None:
    catalogue = context.client.send(context.operation("GET", "/v1/engines"), {}).body
    found = next((one for one in catalogue if one["id"] == engine), None)
    if found is None or found["availability"] != "available":
        reason = (found or {}).get("reason") or "it is not in the catalog"
        raise ConfigurationError(f"{engine} cannot be ordered here: {reason}")


def _create(context: CommandContext, engine: DemoEngine) -> dict[str, Any]:
    operation = context.operation("POST", "/projects/{project_id}/instances")
    if context.profile.project_id is None:
        raise ConfigurationError("the profile names no project: set MENAGERIE_PROJECT")
    org = context.org()
    project_id = context.identify_at("/projects/{project_id}", context.profile.project_id, **org)
    order = {"engine": str(engine), "size": "f0", "name": f"demo-{secrets.token_hex(3)}"}
    _step("Create an instance", curl(context, operation, {"project_id": project_id}, order))
    arguments = {**org, "project_id": project_id, **order}
    instance: dict[str, Any] = context.client.send(operation, arguments).body
    return instance


def _walk(context: CommandContext, instance: dict[str, Any]) -> None:
    from clients.cli import sql  # noqa: PLC0415  HTTP is slow to import, and --help needs none
    from clients.endpoint import Endpoint  # noqa: PLC0415  see above

    get = context.operation("GET", "/instances/{instance_id}")
    subject = {"instance_id": instance["id"]}
    _step("Wait until it runs", curl(context, get, subject, query="?wait_for=running&timeout_s=60"))
    with waiting("running") as tell:
        instance = context.client.wait(
            instance["id"], "running", operation_id=get.id, on_change=tell
        )
    reveal = context.operation("POST", "/instances/{instance_id}/credentials/reveal")
    read_url = "python3 -c 'import json, sys; print(json.load(sys.stdin)[\"url\"])'"
    fetch = (
        f'URL=$({curl(context, reveal, subject)} | {read_url})\ncurl -sS{_trust(context)} "$URL"'
    )
    _step("Reveal its credentials, once: the answer's `url` is fetched from the cell", fetch)
    endpoint = Endpoint(context.client, instance)
    credential = endpoint.reveal()
    place = Place(instance["engine"], credential, authorities(endpoint, credential))
    with endpoint.session(credential) as session:
        for statement in STATEMENTS.get(instance["engine"], SQL):
            _step("Query it over TLS", _line(place, statement))
            sql.show(session.query(statement), Rows.table)


def _line(place: Place, statement: str) -> str:
    if place.engine == DemoEngine.duckdb:
        return curl_query(place, statement, '"$PASSWORD"')
    return native.shell_line(place.engine, place.credential, place.ca_file, statement)


def _delete(context: CommandContext, instance: dict[str, Any]) -> None:
    operation = context.operation("DELETE", "/instances/{instance_id}")
    subject = {"instance_id": instance["id"]}
    _step("Delete it", curl(context, operation, subject))
    gone = context.client.send(operation, subject).body
    if gone and gone.get("purge_after"):
        typer.echo(plain(f"its data is kept until {gone['purge_after']}"), err=True)


def _step(title: str, line: str) -> None:
    typer.secho(f"\n{title}", bold=True)
    typer.secho(plain(line), dim=True)


def curl(
    context: CommandContext,
    operation: Operation,
    path: dict[str, Any],
    body: dict[str, Any] | None = None,
    query: str = "",
) -> str:
    """Answer the operation's request as a curl line that can be pasted."""
    url = context.client.base_url + operation.path
    for name, value in {"org_id": context.org_id or "$ORG", **path}.items():
        url = url.replace(f"{{{name}}}", str(value))
    method = (
        "" if operation.method == ("GET" if body is None else "POST") else f" -X {operation.method}"
    )
    sent = ""
    if body:
        sent = f" \\\n  -H 'Content-Type: application/json' -d {shlex.quote(json.dumps(body))}"
    trust = _trust(context) if url.startswith("https") else ""
    # A shell replaces the variable, and nothing else in it.
    quoted = shlex.quote(url + query).replace("$ORG", "'\"$ORG\"'")
    return f'curl -sS{trust}{method} {quoted} -H "Authorization: Bearer $MENAGERIE_API_KEY"{sent}'


def _trust(context: CommandContext) -> str:
    return f" --cacert {shlex.quote(context.client.ca_file)}" if context.client.ca_file else ""
