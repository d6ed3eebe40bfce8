"""The operator's commands for credits: grant some, and decide applications for credit programs."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from clients.cli.output import OutputOption
from menagerie.refusals import unusable

if TYPE_CHECKING:  # slow to import, and --help needs none of it
    from control.services import Services

Home = Annotated[
    Path | None,
    typer.Option(help="Folder for all data of the installation. Default: ~/.menagerie."),
]
Months = Annotated[
    int | None,
    typer.Option(min=1, max=120, help="Full months it is valid for, after the current one."),
]
Amount = Annotated[
    str | None,
    typer.Option(metavar="AMOUNT", help="Amount in the currency, such as 50 or 49.90."),
]
Application = Annotated[str, typer.Argument(metavar="APPLICATION", help="Id of the application.")]


def credits_grant(
    org: Annotated[str, typer.Argument(metavar="ORG", help="Id of the organization.")],
    amount: Annotated[
        str, typer.Argument(metavar="AMOUNT", help="In the currency, such as 50 or 49.90.")
    ],
    reason: Annotated[str, typer.Option(help="Why; the organization reads it.")],
    months: Months = None,
    reference: Annotated[
        str | None,
        typer.Option(help="A name of your own: nothing is granted twice with the same one."),
    ] = None,
    home: Home = None,
) -> None:
    """Grant an organization a credit, which its invoices use before anything is paid.

    It does not expire without --months. The grant is in the organization's audit log.

    Example: menagerie credits grant org_01JD7QK3V8Y2M4N6P8R0S2T4V6 50 --reason "for the outage"
    """
    with deciding("credits grant", home) as services:
        from menagerie import credit_grants  # noqa: PLC0415 -- keeps --help quick

        told = credit_grants.grant(
            services, org, amount, reason=reason, months=months, reference=reference
        )
    typer.echo(told)


def programmes_list(
    status: Annotated[
        Literal["pending", "approved", "declined", "all"],
        typer.Option(help="Only those of this status."),
    ] = "pending",
    home: Home = None,
    output: OutputOption = None,
) -> None:
    """List applications for credit programs, of all organizations, oldest first.

    Example: menagerie programmes list --status all
    """
    from clients.cli.output import show  # noqa: PLC0415 -- keeps --help quick

    with deciding("programmes list", home) as services:
        from menagerie import credit_grants  # noqa: PLC0415 -- as above

        found = credit_grants.applications(services, None if status == "all" else status)
    show({"items": found, "next_cursor": None}, output)


def programmes_approve(
    application: Application,
    amount: Amount = None,
    months: Months = None,
    home: Home = None,
) -> None:
    """Approve an application: the organization gets the program's credit, once.

    Whoever applied gets an email.

    Example: menagerie programmes approve papp_01JD7QK3V8Y2M4N6P8R0S2T4V6 --amount 2500
    """
    with deciding("programmes approve", home) as services:
        from menagerie import credit_grants  # noqa: PLC0415 -- as above

        told = credit_grants.approve(services, application, amount, months)
    typer.echo(told)


def programmes_decline(
    application: Application,
    note: Annotated[str, typer.Option(help="Why; whoever applied reads it.")],
    home: Home = None,
) -> None:
    """Decline an application. The organization can apply again 30 days later.

    Example: menagerie programmes decline papp_01JD7QK3V8Y2M4N6P8R0S2T4V6 --note "no license"
    """
    with deciding("programmes decline", home) as services:
        from menagerie import credit_grants  # noqa: PLC0415 -- as above

        told = credit_grants.decline(services, application, note)
    typer.echo(told)


@contextmanager
def deciding(command: str, home: Path | None) -> Iterator[Services]:
    """The services of the home; what is refused ends the command with a line and status 1."""
    with unusable(command):
        from menagerie.composition import build_services  # noqa: PLC0415 -- as above
        from menagerie.errors import SettingsError  # noqa: PLC0415 -- as above
        from menagerie.settings import load  # noqa: PLC0415 -- as above
        from storage.errors import RecordNotFound, StateConflict  # noqa: PLC0415 -- as above

        settings = load(home=home)
        if not (settings.root / "keys" / "seal.key").exists():
            raise SettingsError(
                f"{settings.root} is not the home of an installation: pass it with --home"
            )
        try:
            yield build_services(settings)
        except (RecordNotFound, StateConflict) as refused:
            typer.echo(f"menagerie {command}: {refused.detail}", err=True)
            raise typer.Exit(1) from None


COMMANDS: dict[str, Callable[..., None]] = {
    "credits grant": credits_grant,
    "programmes list": programmes_list,
    "programmes approve": programmes_approve,
    "programmes decline": programmes_decline,
}
