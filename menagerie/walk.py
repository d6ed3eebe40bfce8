"""What `menagerie serve` prints when ready: addresses, first secrets, and commands to paste."""

import shlex
import sys
from dataclasses import asdict
from pathlib import Path

from menagerie.endpoints import Endpoints, Owner
from menagerie.settings import DEFAULT_HOME, Settings

_FIRST = """\
First start. These secrets are shown once; {file} (mode 0600) keeps the key and the session.
  owner          {email}
  password       {password}
  API key        {api_key}
  session        {session_token}
  organization   {org_id}
  project        {project_id}
"""

_WALK = """
Create a PostgreSQL database and query it. In another terminal:

  {command} instances create --engine postgres --size f0 --name first --wait
  {command} query first 'SELECT version()'

Or, with curl alone, create a DuckDB database, reveal its credential and query it. Paste:

  API={base_url} ORG={org_id} PROJECT={project_id} CA={ca_file}
  KEY={key}
  AUTH="Authorization: Bearer $KEY" JSON="Content-Type: application/json"
  ID=$(curl -sS "$API/v1/orgs/$ORG/projects/$PROJECT/instances" -H "$AUTH" -H "$JSON" \\
       -d '{{"engine": "duckdb", "size": "f0"}}' | grep -o 'inst_[0-9A-Z]*' | head -n 1)
  HOST=$(curl -sS "$API/v1/orgs/$ORG/instances/$ID?wait_for=running&timeout_s=60" -H "$AUTH" \\
       | grep -o '"host":"[^"]*"' | cut -d '"' -f 4)
  URL=$(curl -sS -X POST "$API/v1/orgs/$ORG/instances/$ID/credentials/reveal" -H "$AUTH" \\
       | grep -o 'https://[^"]*')
  PASSWORD=$(curl -sS --cacert "$CA" "$URL" | grep -o '"password":"[^"]*"' | cut -d '"' -f 4)
  curl -sS --cacert "$CA" "https://$HOST:{https_port}/query" -u "app:$PASSWORD" -H "$JSON" \\
       -d '{{"sql": "SELECT 42 AS answer"}}'

Or run the same as a demo: {command} demo [--engine postgres]
"""


def introduction(settings: Settings, endpoints: Endpoints, owner: Owner | None) -> str:
    """The first secrets, or, after the first start, where they are."""
    file = settings.root / "endpoints.json"
    if owner is None:
        return f"Addresses, API key and session are in {file}.\n"
    return _FIRST.format(file=file, **asdict(owner), **asdict(endpoints))


def welcome(settings: Settings, endpoints: Endpoints, owner: Owner | None) -> str:
    """The lines for standard output. The secrets are in it at the first start only."""
    ports = ", ".join(f"{name} {port}" for name, port in settings.gateway_ports.items())
    lines = [
        "",
        f"Menagerie is ready: {endpoints.base_url} (API reference: {endpoints.base_url}/docs)",
        f"Gateway ports (TLS): {ports}.",
        "",
        introduction(settings, endpoints, owner),
    ]
    key = endpoints.api_key
    if owner is None:
        file = shlex.quote(str(settings.root / "endpoints.json"))
        key = f'$(sed -n \'s/.*"api_key": "\\(.*\\)".*/\\1/p\' {file})'
    return "\n".join(lines) + _WALK.format(
        **asdict(endpoints) | {"ca_file": shlex.quote(endpoints.ca_file)},
        key=key,
        https_port=settings.gateway_https_port,
        command=_command(settings),
    )


def _command(settings: Settings) -> str:
    """How the command is called from here, with the home where it is not the usual one."""
    command = Path(sys.executable).with_name("menagerie")
    if command.is_relative_to(Path.cwd()):
        command = command.relative_to(Path.cwd())
    if settings.root == DEFAULT_HOME.expanduser():
        return shlex.quote(str(command))
    return f"MENAGERIE_HOME={shlex.quote(str(settings.root))} {shlex.quote(str(command))}"
