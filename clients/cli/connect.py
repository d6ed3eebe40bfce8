"""`menagerie connect`: the engine's own client where there is one, else a small one of ours."""

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Annotated, Any, Final

import typer

from clients import private_files
from clients.cli import sql
from clients.cli.desk import OrgOption, ProfileOption, open_desk
from clients.cli.query import StoreOption
from clients.cli.repl import Repl, line_editing
from clients.endpoint import HTTPS_ENGINES, Credential
from clients.errors import ConfigurationError
from clients.hosts import LOOPBACK, is_local
from clients.source import cache_folder

app = typer.Typer(add_completion=False, rich_markup_mode="markdown")

# Engine: the clients that speak its protocol, best first.
POSTGRES: Final = ("psql",)
MYSQL: Final = ("mariadb", "mysql")
REDIS: Final = ("valkey-cli", "redis-cli")
MONGODB: Final = ("mongosh",)
PROGRAMS: Final = {
    "postgres": POSTGRES, "timescaledb": POSTGRES, "questdb": POSTGRES, "mysql": MYSQL,
    "mariadb": MYSQL, "redis": REDIS, "valkey": REDIS, "mongodb": MONGODB, "ferretdb": MONGODB,
}  # fmt: skip


@app.command(epilog="Example: `menagerie connect sales`")
def connect(
    instance: Annotated[str, typer.Argument(metavar="INSTANCE", help="Name or id.")],
    no_store: StoreOption = False,
    org: OrgOption = None,
    profile: ProfileOption = None,
) -> None:
    r"""Open a database client on an instance.

    Starts the engine's own client (psql, mariadb, valkey-cli, …) with the password in its
    environment, never among its arguments. For DuckDB it is a small client: statements end with
    `;`, `\q` leaves, `\?` helps.
    """
    desk = open_desk(profile, org=org)
    with desk.client:
        endpoint = sql.endpoint_of(desk, instance)
        engine = endpoint.instance["engine"]
        keeper = sql.Keeper(endpoint, store=not no_store)
        if engine in HTTPS_ENGINES:
            _talk(keeper)
            return
        program = _program(engine)
        credential, ca_file, ca_pem = keeper.credential(), desk.client.ca_file, endpoint.ca_pem()
    with tempfile.TemporaryDirectory() as folder:
        if ca_file is None and ca_pem is not None:
            ca_file = str(Path(folder) / "ca.pem")
            private_files.write(Path(ca_file), ca_pem)
        arguments, environment = command_line(program, credential, ca_file)
        ended = subprocess.run(arguments, env={**os.environ, **environment}, check=False)  # noqa: S603  a client found on PATH
    raise typer.Exit(ended.returncode)


def _talk(keeper: sql.Keeper) -> None:
    """Run the small client over one session, renewed where its credential is refused."""
    name = keeper.endpoint.instance["name"]
    with keeper, line_editing(cache_folder() / "history"):
        version = keeper.query("SELECT version()").rows[0][0]
        typer.echo(f"{name}, DuckDB {version}. \\? helps, \\q leaves.", err=True)
        Repl(name, keeper.query, _typed).loop()


def _typed(prompt: str) -> str:
    # A prompt would stand among the rows where statements come from a file or a pipe.
    return input(prompt if sys.stdin.isatty() else "")


def _program(engine: str) -> str:
    known = PROGRAMS.get(engine, ())
    found = next((path for name in known if (path := shutil.which(name))), None)
    if found is None:
        wanted = " or ".join(known) or "no client we know"
        raise ConfigurationError(f"{engine} is spoken by {wanted}, and none is on the PATH")
    return found


def command_line(
    program: str, credential: Credential, ca_file: str | None
) -> tuple[list[str], dict[str, str]]:
    """Answer the arguments and the environment for the client; secrets are in the latter only."""
    host, port = credential.host, str(credential.port)
    name = Path(program).name
    if name in POSTGRES:
        environment: dict[str, Any] = {
            "PGHOST": host, "PGPORT": port, "PGUSER": credential.username,
            "PGPASSWORD": credential.password, "PGDATABASE": "postgres",
            "PGSSLMODE": "verify-full", "PGSSLROOTCERT": ca_file or "system",
        }  # fmt: skip
        # *.localhost does not resolve everywhere; the name is still what is verified.
        return [program], environment | ({"PGHOSTADDR": LOOPBACK} if is_local(host) else {})
    if name in MYSQL:
        verify = (
            ["--ssl-verify-server-cert"] if name == "mariadb" else ["--ssl-mode=VERIFY_IDENTITY"]
        )
        ca = [f"--ssl-ca={ca_file}"] if ca_file else []
        return [
            program,
            f"--host={host}",
            f"--port={port}",
            f"--user={credential.username}",
            *verify,
            *ca,
        ], {"MYSQL_PWD": credential.password}
    if name in REDIS:
        ca = ["--cacert", ca_file] if ca_file else []
        address = LOOPBACK if is_local(host) else host
        return [
            program,
            "-h",
            address,
            "-p",
            port,
            "--tls",
            "--sni",
            host,
            "--user",
            credential.username,
            *ca,
        ], {"REDISCLI_AUTH": credential.password}
    raise ConfigurationError(
        f"{name} takes its password only among its arguments; use `menagerie credentials`"
    )
