"""`menagerie load`: what `menagerie dump` or pg_dump wrote, into a PostgreSQL instance."""

import io
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final, cast

import typer

from clients.cli import confirming
from clients.cli.arguments import InstanceArgument, OrgOption, ProfileOption
from clients.cli.command_context import open_context
from clients.cli.confirming import YesOption
from clients.cli.groups import App
from clients.cli.query import StoreOption
from clients.cli.restricting import Restricted
from clients.errors import ConfigurationError

STDIN: Final = "-"
# How an archive of pg_dump begins, in its custom format.
ARCHIVE: Final = b"PGDMP"

if TYPE_CHECKING:
    from clients.cli import copying

app = App()


@app.command(epilog="Example: menagerie load sales sales.dump")
def load(
    instance: InstanceArgument,
    file: Annotated[str, typer.Argument(metavar="FILE", help="File to read; `-` is stdin.")],
    clean: Annotated[
        bool,
        typer.Option(
            "--clean",
            help="Drop the archive's objects before they are created.",
            show_default=False,
        ),
    ] = False,
    owners: Annotated[
        bool,
        typer.Option("--owners", help="Restore owners and privileges.", show_default=False),
    ] = False,
    psql_commands: Annotated[
        bool,
        typer.Option(
            "--psql-commands",
            help="Let SQL use psql's backslash commands, which can run programs on this machine.",
            show_default=False,
        ),
    ] = False,
    yes: YesOption = False,
    no_store: StoreOption = False,
    org: OrgOption = None,
    profile: ProfileOption = None,
) -> None:
    r"""Load a dump into a PostgreSQL instance, completely or not at all.

    Reads archives in pg_dump's custom format, and SQL. psql runs the SQL and refuses backslash
    commands in it, such as `\!`, unless you allow them.
    """
    from clients.cli import copying  # noqa: PLC0415  HTTP is slow to import, and --help needs none

    if clean:
        confirming.require_answerable("load --clean", yes=yes)
    with _opened(file) as source:
        is_archive = source.peek(len(ARCHIVE))[: len(ARCHIVE)] == ARCHIVE
        if clean and not is_archive:
            raise ConfigurationError(
                "--clean works with archives only; an SQL file has its own DROP statements"
            )
        context = open_context(profile, org=org)
        if clean:
            confirming.ask(
                instance, "The objects in the archive are dropped and created again.", yes=yes
            )
        with context.client, copying.opened_target(context, instance, store=not no_store) as target:
            words = (
                _restoring(target, clean=clean, owners=owners)
                if is_archive
                else [target.program("psql"), *PSQL]
            )
            progress = copying.Progress("loaded")
            with copying.started(words, target, stdin=subprocess.PIPE, stdout=NOWHERE) as process:
                assert process.stdin is not None
                copying.copy(
                    source if is_archive or psql_commands else Restricted(source),
                    process.stdin,
                    progress,
                )
            progress.end(target.name)


# One transaction, which the first error undoes; nothing of the user's own psqlrc.
PSQL: Final = (
    *("--no-psqlrc", "--quiet", "--no-password", "--single-transaction"),
    *("--set=ON_ERROR_STOP=1", "--file=-"),
)
NOWHERE: Final = subprocess.DEVNULL


def _restoring(target: "copying.Target", *, clean: bool, owners: bool) -> list[str]:
    words = [
        target.program("pg_restore"),
        "--no-password",
        "--single-transaction",
        "--exit-on-error",
    ]
    words += [f"--dbname={target.environment['PGDATABASE']}"]
    words += [] if owners else ["--no-owner", "--no-privileges"]
    return words + (["--clean", "--if-exists"] if clean else [])


def _opened(file: str) -> io.BufferedReader:
    if file == STDIN:
        return cast("io.BufferedReader", sys.stdin.buffer)
    try:
        return Path(file).open("rb")
    except OSError as error:
        raise ConfigurationError(f"cannot read {file}: {error.strerror}") from error
