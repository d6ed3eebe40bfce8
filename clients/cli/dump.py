"""`menagerie dump`: everything of an instance, or of its database, in one file."""

import subprocess
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Final

import typer

from clients.cli import targets
from clients.cli.arguments import InstanceArgument, OrgOption, ProfileOption
from clients.cli.command_context import CommandContext, open_context
from clients.cli.groups import CommandApp
from clients.cli.query import StoreOption
from clients.cli.targets import ForceOption
from clients.errors import ConfigurationError

# Of dumps that the cell makes, by a URL: those of other engines.
SUFFIXES: Final = {
    "mariadb": "sql", "mysql": "sql", "duckdb": "duckdb", "redis": "rdb", "valkey": "rdb",
}  # fmt: skip

UNOWNED: Final = ("--no-owner", "--no-privileges")

app = CommandApp()


class Form(StrEnum):
    """What --format takes: an archive of pg_dump, compressed, or SQL."""

    custom = "custom"
    plain = "plain"


@app.command(epilog="Example: menagerie dump sales sales.dump")
def dump(
    instance: InstanceArgument,
    file: Annotated[
        str | None,
        typer.Argument(
            metavar="FILE",
            help="File to write; `-` is stdout. Default: INSTANCE.dump, .sql, .rdb or .duckdb.",
            show_default=False,
        ),
    ] = None,
    form: Annotated[
        Form | None,
        typer.Option(
            "--format",
            help="Archive format. Default: plain for *.sql and stdout, otherwise custom.",
            show_default=False,
        ),
    ] = None,
    force: ForceOption = False,
    owners: Annotated[
        bool,
        typer.Option("--owners", help="Include owners and privileges.", show_default=False),
    ] = False,
    no_store: StoreOption = False,
    org: OrgOption = None,
    profile: ProfileOption = None,
) -> None:
    """Write the data of an instance to a file, as a consistent snapshot.

    Of PostgreSQL, this runs a pg_dump that is at least as new as the server; one comes with
    Menagerie, and `menagerie load` restores the dump. Of other engines, the cell makes the dump:
    SQL of MariaDB and MySQL, an RDB file of Redis and Valkey, a DuckDB database. The file appears
    when the dump is complete, and only you can read it.
    """  # fmt: skip
    from clients.cli import sql  # noqa: PLC0415  HTTP is slow to import, and --help needs none

    target = Path(file) if file is not None and file != targets.STDOUT else None
    if file is not None:
        targets.check(target, force=force, binary=form is Form.custom)
    context = open_context(profile, org=org)
    with context.client:
        endpoint = sql.endpoint_of(context, instance)
        suffix = SUFFIXES.get(endpoint.instance["engine"])
        target = target or (Path(f"{instance}.{suffix or 'dump'}") if file is None else None)
        if suffix is None:
            chosen = form or _form_of(target)
            targets.check(target, force=force, binary=chosen is Form.custom)
            words = [f"--format={chosen}", *([] if owners else UNOWNED)]
            _run(context, instance, target, words, store=not no_store, force=force)
        elif form is not None or owners:
            raise ConfigurationError("--format and --owners are for PostgreSQL only")
        else:
            targets.check(target, force=force, binary=suffix != "sql")
            targets.write(endpoint.dump(), target, force=force)


def _run(
    context: CommandContext,
    instance: str,
    target: Path | None,
    words: list[str],
    *,
    store: bool,
    force: bool,
) -> None:
    """What a pg_dump of this machine writes."""
    from clients.cli import copying  # noqa: PLC0415  as above

    progress = copying.Progress("wrote")
    with (
        copying.opened_target(context, instance, store=store) as server,
        targets.opened(target, force=force) as output,
        copying.started(
            [server.program("pg_dump"), "--no-password", *words], server, stdout=subprocess.PIPE
        ) as process,
    ):
        assert process.stdout is not None
        copying.copy(process.stdout, output, progress)
    progress.end(str(target or "stdout"))


def _form_of(target: Path | None) -> Form:
    return Form.plain if target is None or target.suffix == ".sql" else Form.custom
