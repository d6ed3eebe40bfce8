"""The command that checks the audit log."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from menagerie.refusals import unusable


def audit_verify(
    home: Annotated[
        Path | None,
        typer.Option(help="Folder for all data of the installation. Default: ~/.menagerie."),
    ] = None,
    org: Annotated[
        str | None,
        typer.Option(metavar="ID", help="Only the log of this organization. Default: all."),
    ] = None,
    log: Annotated[
        Path | None,
        typer.Option(
            metavar="PATH",
            help="File or folder of the signed log. Default: audit-log in the home.",
        ),
    ] = None,
    from_export: Annotated[
        list[Path] | None,
        typer.Option(
            metavar="FILE", help="Check this export instead of the database; can be repeated."
        ),
    ] = None,
    heads: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Published heads to compare the export with, as JSON."),
    ] = None,
) -> None:
    """Check the audit log: find entries that were changed, removed, inserted or moved.

    Needs no running service: it reads the database and the signed log of the home. With
    --from-export it reads files only, so that an organization can check its own exports.
    Exit status: 0 when all is right, 1 when something is not, 2 when it cannot be checked.

    Examples:

      menagerie audit verify

      menagerie audit verify --org org_01JD7QK3V8Y2M4N6P8R0S2T4V6 --from-export audit.csv
    """
    with unusable("audit verify"):
        from menagerie import audit_verify as verifying  # noqa: PLC0415 -- keeps --help quick
        from menagerie.errors import SettingsError  # noqa: PLC0415 -- as above

        if from_export:
            if org is None:
                raise SettingsError("an export does not name its organization: pass its id, --org")
            found = verifying.export(from_export, org, heads)
        elif heads is not None:
            raise SettingsError("--heads belongs to --from-export; the database has its own")
        else:
            found = verifying.of_installation(home, org, log)
    typer.echo(found.text())
    raise typer.Exit(1 if found.findings else 0)
