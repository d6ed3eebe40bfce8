"""The server's commands: serve, wait, doctor, init, api, worker, cell, gateway and more."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from clients.cli.output import OutputOption
from clients.source import SHIPPED
from menagerie import contract
from menagerie.audit_commands import audit_verify
from menagerie.billing_commands import COMMANDS as BILLING_COMMANDS
from menagerie.credit_commands import COMMANDS as CREDIT_COMMANDS
from menagerie.recovery.commands import backup, recover
from menagerie.refusals import unusable
from menagerie.unwanted import hide
from menagerie.usage_commands import COMMANDS as USAGE_COMMANDS

if TYPE_CHECKING:  # the settings' library is slow to import, and --help needs none of it
    from menagerie.settings import Settings

Home = Annotated[
    Path | None,
    typer.Option(help="Folder for all data of the installation. Default: ~/.menagerie."),
]
LogFormat = Annotated[str | None, typer.Option(help="Log format: text or json.")]


# On PostgreSQL the others read their keys there, and it may be mounted read-only.
WRITE_HOME = frozenset({"serve", "init", "cell", "gateway"})
WRITE_DATABASE = frozenset({"api", "worker", "upgrade-database"})


def _settings(role: str, **options: Any) -> Settings:
    """The settings in force, logging set up for `role`; an unusable one ends with status 2."""
    from menagerie import home as homes  # noqa: PLC0415 -- see above
    from menagerie import logs  # noqa: PLC0415 -- as all imports in here: keeps --help quick
    from menagerie.errors import SettingsError  # noqa: PLC0415 -- see above
    from menagerie.settings import load  # noqa: PLC0415 -- see above

    try:
        settings = load(**options)
        if role in WRITE_HOME or (role in WRITE_DATABASE and settings.on_sqlite):
            homes.prepare(settings.root)
    except SettingsError as error:
        typer.echo(f"menagerie {role}: {error}", err=True)
        raise typer.Exit(2) from error
    logs.configure(settings.log_format, settings.log_level, role=role)
    return settings


def _gateway_port(protocol: str, usual: int) -> Any:
    text = f"Gateway port for {protocol}; 0 picks a free one. Default: {usual}."
    return typer.Option(help=text, rich_help_panel="Gateway ports")


AnyPort = Annotated[
    int | None,
    typer.Option(help="Same as --gateway-https-port; 0 picks free ports for all protocols."),
]
HttpsPort = Annotated[int | None, _gateway_port("HTTP engines", 8443)]
PostgresPort = Annotated[int | None, _gateway_port("PostgreSQL", 15432)]
MysqlPort = Annotated[int | None, _gateway_port("MySQL and MariaDB", 13306)]
RespPort = Annotated[int | None, _gateway_port("Redis and Valkey", 16379)]
MongodbPort = Annotated[int | None, _gateway_port("MongoDB", 17017)]
ClickhouseHttpsPort = Annotated[int | None, _gateway_port("ClickHouse over HTTPS", 18443)]
ClickhousePort = Annotated[int | None, _gateway_port("ClickHouse's native protocol", 19440)]


def _with_any_port(port: int | None, named: dict[str, int | None]) -> dict[str, int | None]:
    """0 for one is meant for all: what tries the service out should collide with nothing."""
    if port == 0:
        return {name: 0 if given is None else given for name, given in named.items()}
    if port is not None and named["gateway_https_port"] is None:
        return named | {"gateway_https_port": port}
    return named


def serve(
    home: Home = None,
    host: Annotated[
        str | None, typer.Option(help="Address of the API. Default: 127.0.0.1.")
    ] = None,
    port: Annotated[
        int | None, typer.Option(help="Port of the API; 0 picks a free one. Default: 8080.")
    ] = None,
    gateway_port: AnyPort = None,
    gateway_https_port: HttpsPort = None,
    gateway_postgres_port: PostgresPort = None,
    gateway_mysql_port: MysqlPort = None,
    gateway_resp_port: RespPort = None,
    gateway_mongodb_port: MongodbPort = None,
    gateway_clickhouse_https_port: ClickhouseHttpsPort = None,
    gateway_clickhouse_port: ClickhousePort = None,
    log_format: LogFormat = None,
    dev: Annotated[
        bool | None, typer.Option("--dev", help="Check every response against openapi.yaml.")
    ] = None,
) -> None:
    """Run everything on this machine: API, worker, cell and gateway.

    The first start creates an owner, an organization, a project, an API key and a session, and
    prints them once, with commands to paste. A later start on the same home starts all instances
    again. HOME/endpoints.json contains the addresses, the API key and the session.

    Examples:

      menagerie serve

      menagerie serve --home ./try --port 0 --gateway-port 0
    """
    hide("rich")
    from menagerie.serve import main  # noqa: PLC0415 -- keeps the other commands quick

    ports = _with_any_port(
        gateway_port,
        {
            "gateway_https_port": gateway_https_port,
            "gateway_postgres_port": gateway_postgres_port,
            "gateway_mysql_port": gateway_mysql_port,
            "gateway_resp_port": gateway_resp_port,
            "gateway_mongodb_port": gateway_mongodb_port,
            "gateway_clickhouse_https_port": gateway_clickhouse_https_port,
            "gateway_clickhouse_port": gateway_clickhouse_port,
        },
    )
    settings = _settings(
        "serve", home=home, host=host, port=port, log_format=log_format, dev=dev, **ports
    )
    with unusable("serve"):
        raise typer.Exit(main(settings))


def api(
    home: Home = None,
    host: Annotated[
        str | None, typer.Option(help="Address of the API. Default: 127.0.0.1.")
    ] = None,
    port: Annotated[int | None, typer.Option(help="Port of the API. Default: 8080.")] = None,
    processes: Annotated[
        int | None, typer.Option(help="Number of API processes. Default: 1.")
    ] = None,
    log_format: LogFormat = None,
) -> None:
    """Run the control plane's API under gunicorn; on SQLite, with the worker in the same process.

    Example: menagerie api --host 0.0.0.0 --processes 4
    """
    _begin_part()
    settings = _settings(
        "api", home=home, host=host, port=port, processes=processes, log_format=log_format
    )
    from menagerie import under_gunicorn  # noqa: PLC0415 -- keeps the other commands quick

    with unusable("api"):
        under_gunicorn.become(settings)


def worker(home: Home = None, log_format: LogFormat = None) -> None:
    """Run a background worker. On PostgreSQL you can run several."""
    _begin_part()
    settings = _settings("worker", home=home, log_format=log_format)
    from menagerie import control_plane  # noqa: PLC0415 -- keeps the other commands quick

    with unusable("worker"):
        raise typer.Exit(control_plane.run_worker(settings))


def cell(home: Home = None, log_format: LogFormat = None) -> None:
    """Run the agent that holds credentials and runs engines on this machine."""
    _begin_part()
    settings = _settings("cell", home=home, log_format=log_format)
    from menagerie import data_plane  # noqa: PLC0415 -- keeps the other commands quick

    with unusable("cell"):
        data_plane.run_cell(settings)


def gateway(
    home: Home = None,
    gateway_https_port: HttpsPort = None,
    gateway_postgres_port: PostgresPort = None,
    gateway_mysql_port: MysqlPort = None,
    gateway_resp_port: RespPort = None,
    gateway_mongodb_port: MongodbPort = None,
    gateway_clickhouse_https_port: ClickhouseHttpsPort = None,
    gateway_clickhouse_port: ClickhousePort = None,
    log_format: LogFormat = None,
) -> None:
    """Run the TLS gateway of this machine's cell.

    Use the same port settings as for the cell, which announces them to clients.
    """
    _begin_part()
    settings = _settings(
        "gateway",
        home=home,
        gateway_https_port=gateway_https_port,
        gateway_postgres_port=gateway_postgres_port,
        gateway_mysql_port=gateway_mysql_port,
        gateway_resp_port=gateway_resp_port,
        gateway_mongodb_port=gateway_mongodb_port,
        gateway_clickhouse_https_port=gateway_clickhouse_https_port,
        gateway_clickhouse_port=gateway_clickhouse_port,
        log_format=log_format,
    )
    from menagerie import data_plane  # noqa: PLC0415 -- keeps the other commands quick

    with unusable("gateway"):
        data_plane.run_gateway(settings)


def init(
    home: Home = None,
    port: Annotated[int | None, typer.Option(help="Port of the API. Default: 8080.")] = None,
    log_format: LogFormat = None,
) -> None:
    """Prepare a database: create the schema, register this home's cell, create the first owner.

    `serve` does this itself. Use the same settings for all parts (environment or config.toml).

    Example: MENAGERIE_DATABASE_URL=postgresql://menagerie@db/menagerie menagerie init
    """
    settings = _settings("init", home=home, port=port, log_format=log_format)
    from menagerie import first_start, walk  # noqa: PLC0415 -- see above

    with unusable("init"):
        endpoints, owner = first_start.initialize(settings)
    typer.echo(walk.introduction(settings, endpoints, owner))


def upgrade_database(home: Home = None, log_format: LogFormat = None) -> None:
    """Upgrade the database to this version's schema. `serve` does this itself."""
    settings = _settings("upgrade-database", home=home, log_format=log_format)
    from storage.database import Database  # noqa: PLC0415 -- keeps the other commands quick

    with unusable("upgrade-database"):
        Database(settings.database).migrate()
    typer.echo("the database now has the schema of this version")


def config(home: Home = None) -> None:
    """Print the current settings, and where each one was set."""
    from menagerie.redaction import redacted  # noqa: PLC0415
    from menagerie.settings import sources  # noqa: PLC0415

    settings = _settings("config", home=home)
    origin = sources(home=home)
    for name, value in redacted(settings).items():
        typer.echo(f"{name} = {json.dumps(value)}  # {origin.get(name, 'default')}")


def openapi(output: OutputOption = None) -> None:
    """Print the API's OpenAPI document in one piece, as a running service serves it.

    Example: menagerie openapi -o yaml > openapi-whole.yaml
    """
    from clients.cli.output import Format, chosen, show  # noqa: PLC0415 -- see above

    form = chosen(output)
    show(contract.public(), Format.json if form is Format.table else form)


def wait(
    home: Home = None,
    url: Annotated[
        str | None, typer.Option(help="URL of the API. Default: the service of this home.")
    ] = None,
    timeout: Annotated[
        float,
        typer.Option(min=0, help="Maximum seconds to wait. Default: 120.", show_default=False),
    ] = 120,
) -> None:
    """Wait until the service is ready, and show what is missing.

    Ready means that a worker is running, a cell has reported its engines, and the gateway of a
    service on this home is listening. Exit status: 0 ready, 1 timeout, 2 invalid settings.

    Example: menagerie wait --timeout 60
    """
    if url is not None and not url.startswith(("http://", "https://")):
        raise typer.BadParameter("must begin with http:// or https://", param_hint="--url")
    settings = _settings("wait", home=home)
    from menagerie import waiting  # noqa: PLC0415 -- keeps the other commands quick

    raise typer.Exit(waiting.wait(settings, url, timeout))


def mail(home: Home = None) -> None:
    """Show the mail that this installation has sent while no mail server is set (mail_url).

    Example: menagerie mail
    """
    settings = _settings("mail", home=home)
    from menagerie.mail import folder_in, read  # noqa: PLC0415 -- keeps the other commands quick

    folder = folder_in(settings.root)
    found = read(folder)
    if settings.mail_url:
        typer.echo("mail goes to the mail server of mail_url since that is set", err=True)
    typer.echo("\n\n".join(found) if found else f"there is no mail in {folder}")


def support(
    email: Annotated[
        str | None, typer.Argument(help="Whom to make support. Default: list who is.")
    ] = None,
    end: Annotated[bool, typer.Option("--end", help="They are no longer support.")] = False,
    home: Home = None,
) -> None:
    """Choose who is support: organizations can give them access for a time (support grants).

    They need an account and a second factor. Without a grant they see nothing of an organization.

    Example: menagerie support grace@example.com
    """
    settings = _settings("support", home=home)
    from menagerie import support as people  # noqa: PLC0415 -- keeps the other commands quick

    if email is None:
        listed = people.everybody(settings.database)
        typer.echo("\n".join(listed) or "nobody is support; menagerie support EMAIL adds somebody")
        return
    try:
        people.change(settings.database, email, ends=end)
    except people.UnknownUserError as error:
        typer.echo(f"menagerie: {error}; invite them to an organization first", err=True)
        raise typer.Exit(1) from None
    typer.echo(f"{email} is {'no longer ' if end else ''}support")


def doctor(
    home: Home = None,
    output: OutputOption = None,
    strict: Annotated[
        bool, typer.Option("--strict", help="Exit with status 1 for warnings too.")
    ] = False,
) -> None:
    """Check this machine and installation, and show how to fix what does not work.

    Changes nothing, and needs neither a running service nor a home. Exit status: 0 when everything
    works, 1 when something does not (with --strict, also for warnings), 2 for invalid settings.

    Example: menagerie doctor --output json
    """
    settings = _settings("doctor", home=home)
    from clients.cli.output import Format, chosen, show  # noqa: PLC0415 -- see above
    from menagerie import logs  # noqa: PLC0415 -- see above
    from menagerie.doctor import examination, findings  # noqa: PLC0415 -- see above

    logs.configure(level="error")  # what cells warn of is among the findings
    found = examination.examine(settings)
    if chosen(output) is Format.table:
        typer.echo(findings.text(found))
    else:
        show(findings.report(found), output)
    raise typer.Exit(findings.exit_status(found, strict=strict))


def _begin_part() -> None:
    hide("rich")
    from menagerie.processes import end_with_parent, keep_what_loads  # noqa: PLC0415 -- see above

    keep_what_loads()
    end_with_parent()


COMMANDS = (
    *(serve, wait, doctor, init, api, worker, cell, gateway),
    *(upgrade_database, config, openapi, backup, recover, mail, support),
)


def register(app: typer.Typer) -> None:
    """Put the server's commands beside those of `app`, and its document at their hands."""
    SHIPPED.set(contract.shipped())
    named: dict[str, Callable[..., None]] = {
        "audit verify": audit_verify,
        **CREDIT_COMMANDS,
        **BILLING_COMMANDS,
        **USAGE_COMMANDS,
    }
    for name, server_command in named.items():
        app.command(name, rich_help_panel="Server")(server_command)
    for command in COMMANDS:
        shown = "Example" in (command.__doc__ or "")
        epilog = None if shown else f"Example: menagerie {command.__name__.replace('_', '-')}"
        app.command(rich_help_panel="Server", epilog=epilog)(command)
