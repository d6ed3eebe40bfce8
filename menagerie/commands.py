"""The server's commands: serve, api, worker, cell, gateway, migrate, config."""

import os
import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from menagerie import logs
from menagerie.processes import end_with_parent
from menagerie.settings import Settings, SettingsError, load

app = typer.Typer(
    name="menagerie",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    help="Run the service, or parts of it.",
)

Home = Annotated[
    Path | None, typer.Option(help="Where everything of the installation lives. [~/.menagerie]")
]
LogFormat = Annotated[str | None, typer.Option(help="How log lines are written: text or json.")]


def _settings(role: str, **options: Any) -> Settings:
    """The settings in force, logging set up for `role`; an unusable one ends with status 2."""
    try:
        settings = load(**options)
    except SettingsError as error:
        typer.echo(f"menagerie {role}: {error}", err=True)
        raise typer.Exit(2) from error
    logs.configure(settings.log_format, settings.log_level, role=role)
    return settings


def _gateway_ports(given: list[str] | None) -> dict[str, int]:
    """`8443` and `https=8443` are the same; other protocols follow with their engines."""
    ports: dict[str, int] = {}
    for one in given or []:
        protocol, _, port = one.rpartition("=")
        if protocol not in ("", "https") or not port.isdigit():
            raise typer.BadParameter(
                f"{one!r}: give a port, or protocol=port; the protocols offered are: https",
                param_hint="--gateway-port",
            )
        ports[f"gateway_{protocol or 'https'}_port"] = int(port)
    return ports


@app.command()
def serve(
    home: Home = None,
    host: Annotated[str | None, typer.Option(help="Address of the API. [127.0.0.1]")] = None,
    port: Annotated[int | None, typer.Option(help="Port of the API; 0: any free. [8080]")] = None,
    gateway_port: Annotated[
        list[str] | None,
        typer.Option(help="Gateway port, as N or https=N; 0: any free. [8443]"),
    ] = None,
    log_format: LogFormat = None,
    dev: Annotated[
        bool | None, typer.Option("--dev", help="Check every answer against the document.")
    ] = None,
) -> None:
    """Run everything on this machine: API, worker, cell and gateway.

    The first start makes an owner, an organization, a project, an API key and a session, and
    prints them once with a walk to paste. A later start on the same home finds all instances
    again. HOME/endpoints.json holds the addresses and the first secrets.

    Examples:

      menagerie serve

      menagerie serve --home ./try --port 0 --gateway-port 0
    """
    from menagerie.serve import main  # noqa: PLC0415 -- keeps the other commands quick

    ports = _gateway_ports(gateway_port)
    settings = _settings(
        "serve", home=home, host=host, port=port, log_format=log_format, dev=dev, **ports
    )
    raise typer.Exit(main(settings))


@app.command()
def api(
    home: Home = None,
    host: Annotated[str | None, typer.Option(help="Address of the API. [127.0.0.1]")] = None,
    port: Annotated[int | None, typer.Option(help="Port of the API. [8080]")] = None,
    processes: Annotated[int | None, typer.Option(help="API processes. [1]")] = None,
    log_format: LogFormat = None,
) -> None:
    """Run the control plane's API under gunicorn; on SQLite its worker too, in the one process.

    Example: menagerie api --host 0.0.0.0 --processes 4
    """
    end_with_parent()
    settings = _settings(
        "api", home=home, host=host, port=port, processes=processes, log_format=log_format
    )
    from menagerie import control_plane  # noqa: PLC0415 -- keeps the other commands quick

    raise typer.Exit(control_plane.run_api(settings))


@app.command()
def worker(home: Home = None, log_format: LogFormat = None) -> None:
    """Run the work that outlives requests; as many as wanted on PostgreSQL."""
    end_with_parent()
    settings = _settings("worker", home=home, log_format=log_format)
    from menagerie import control_plane  # noqa: PLC0415 -- keeps the other commands quick

    raise typer.Exit(control_plane.run_worker(settings))


@app.command()
def cell(home: Home = None, log_format: LogFormat = None) -> None:
    """Run the agent that holds credentials and runs engines on this machine."""
    end_with_parent()
    settings = _settings("cell", home=home, log_format=log_format)
    from menagerie import data_plane  # noqa: PLC0415 -- keeps the other commands quick

    data_plane.run_cell(settings)


@app.command()
def gateway(home: Home = None, log_format: LogFormat = None) -> None:
    """Run the TLS front door of this machine's cell."""
    end_with_parent()
    settings = _settings("gateway", home=home, log_format=log_format)
    from menagerie import data_plane  # noqa: PLC0415 -- keeps the other commands quick

    data_plane.run_gateway(settings)


@app.command()
def migrate(home: Home = None, log_format: LogFormat = None) -> None:
    """Bring the database to this version's schema. `serve` does it by itself."""
    settings = _settings("migrate", home=home, log_format=log_format)
    from storage.database import Database  # noqa: PLC0415 -- keeps the other commands quick

    settings.root.mkdir(mode=0o700, parents=True, exist_ok=True)
    Database(settings.database).migrate()
    typer.echo("the database is at this version's schema")


@app.command()
def config(home: Home = None) -> None:
    """Print the settings in force, and where each that is not the default was set."""
    from menagerie.settings import redacted, sources  # noqa: PLC0415

    settings = _settings("config", home=home)
    origin = sources(home=home)
    for name, value in redacted(settings).items():
        typer.echo(f"{name} = {value}  # {origin.get(name, 'default')}")


def main(arguments: list[str]) -> int:
    """Run one server command; its exit status."""
    os.environ.setdefault("PYTHONUNBUFFERED", "1")
    try:
        result = app(args=arguments, prog_name="menagerie", standalone_mode=False)
    except typer.Exit as ended:
        return int(ended.exit_code)
    except typer.Abort:
        return 130
    except Exception as error:
        # typer and click report a wrong option by raising; only those know how to show themselves.
        if hasattr(error, "show") and hasattr(error, "exit_code"):
            error.show(file=sys.stderr)
            return int(error.exit_code)
        raise
    return int(result or 0)
