"""The commands for the whole installation: backup and recover."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from clients.cli.output import OutputOption
from menagerie.refusals import unusable

if TYPE_CHECKING:  # the settings' library is slow to import, and --help needs none of it
    from menagerie.settings import Settings

Home = Annotated[
    Path | None,
    typer.Option(help="Folder for all data of the installation. Default: ~/.menagerie."),
]
PassphraseFile = Annotated[
    Path | None,
    typer.Option(
        help="File with the passphrase. Default: the settings, or ask for it.", show_default=False
    ),
]


def backup(
    home: Home = None,
    to: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="File to write. Default: the store of backups."),
    ] = None,
    passphrase_file: PassphraseFile = None,
    force: Annotated[
        bool, typer.Option("--force", help="Overwrite FILE if it exists.", show_default=False)
    ] = False,
    scheduled: Annotated[bool, typer.Option("--scheduled", hidden=True)] = False,
) -> None:
    """Back up the installation: database, keys, certificates and settings; encrypted.

    The service can run meanwhile. The data of instances is in their own backups. The passphrase is
    that of --passphrase-file, of MENAGERIE_INSTALLATION_BACKUP_PASSPHRASE, of the setting
    installation_backup_passphrase_file, or asked for; keep it where the installation is not.

    Example: menagerie backup --to installation.backup
    """
    with unusable("backup"):
        from menagerie.recovery import backing_up, passphrases  # noqa: PLC0415 -- --help is quick

        settings = _settings(home)
        passphrase = passphrases.find(settings, passphrase_file, is_new=True)
        if to is None:
            kind = "scheduled" if scheduled else "manual"
            made = backing_up.into_store(settings, passphrase, kind)  # type: ignore[arg-type]
        else:
            made = backing_up.into_file(settings, to.absolute(), passphrase, force=force)
    if not scheduled:  # `serve` tells of those that fail
        size = f"{made.stored_bytes / 1000:,.0f} kB"
        typer.echo(f"{made.backup_id} of {made.made_at}, {size}, is in {made.where}")


def recover(
    source: Annotated[
        str,
        typer.Option(
            "--from", metavar="FILE|URL", help="File of `menagerie backup`, or URL of the store."
        ),
    ],
    home: Home = None,
    backup_id: Annotated[
        str | None,
        typer.Option("--backup", metavar="ID", help="Which one in the store. Default: the newest."),
    ] = None,
    passphrase_file: PassphraseFile = None,
    keep_database: Annotated[
        bool,
        typer.Option("--keep-database", help="Leave the database in database_url as it is."),
    ] = False,
    output: OutputOption = None,
) -> None:
    """Make a new home from a backup of the installation, and show what will be restored.

    The home must be empty. `menagerie serve` then restores each instance from its newest backup,
    with the same host and a new credential. The old installation must not run any more.

    Example: menagerie recover --from installation.backup --home /srv/menagerie
    """
    with unusable("recover"):
        from menagerie.recovery import passphrases, recovering  # noqa: PLC0415 -- see above

        settings = _settings(home)
        recovering.check_home(settings.root)
        passphrase = passphrases.find(settings, passphrase_file, is_new=False)
        second = settings.backup_copy_store_url
        made = recovering.recover(
            *(settings.root, source, backup_id, passphrase),
            keep_database=keep_database,
            is_second=source.rstrip("/") == second.rstrip("/"),
        )
    from clients.cli.output import Format, chosen, show  # noqa: PLC0415 -- see above
    from menagerie.recovery import report  # noqa: PLC0415 -- see above

    if chosen(output) is Format.table:
        typer.echo(report.text(made))
    else:
        show(made.document(), output)


def _settings(home: Path | None) -> Settings:
    from menagerie import logs  # noqa: PLC0415 -- see above
    from menagerie.settings import load  # noqa: PLC0415 -- see above

    os.umask(0o077)
    settings = load(home=home)
    logs.configure(settings.log_format, settings.log_level, role="backup")
    return settings
