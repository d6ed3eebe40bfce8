"""The operator's commands for invoices: make them, look at them, export them, note payments."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Annotated

import typer

from clients.cli.output import OutputOption
from menagerie.credit_commands import Home, deciding

Month = Annotated[str, typer.Argument(metavar="MONTH", help="A month such as 2026-11.")]
Number = Annotated[str, typer.Argument(metavar="INVOICE", help="Number or id of the invoice.")]


def billing_run(home: Home = None) -> None:
    """Make the invoices that are due now, as the worker does every hour.

    Safe to repeat: an invoice is made once for each organization and month.

    Example: menagerie billing run
    """
    with deciding("billing run", home) as services:
        from menagerie import invoice_books  # noqa: PLC0415 -- keeps --help quick

        told = invoice_books.run(services)
    typer.echo(told)


def billing_show(month: Month, home: Home = None, output: OutputOption = None) -> None:
    """List the invoices of a month, of all organizations, oldest first.

    Example: menagerie billing show 2026-11
    """
    from clients.cli.output import show  # noqa: PLC0415 -- keeps --help quick

    with deciding("billing show", home) as services:
        from menagerie import invoice_books  # noqa: PLC0415 -- as above

        found = invoice_books.listed(services, month)
    show({"items": found, "next_cursor": None}, output)


def billing_export(
    month: Month,
    file: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Where to write it. Default: the terminal.")
    ] = None,
    home: Home = None,
) -> None:
    """Export the journal of a month's invoices as CSV: entries that sum to zero.

    Example: menagerie billing export 2026-11 --file journal.csv
    """
    with deciding("billing export", home) as services:
        from menagerie import invoice_books  # noqa: PLC0415 -- as above

        told = invoice_books.journal_csv(services, month)
    if file is None:
        typer.echo(told, nl=False)
    else:
        file.write_text(told, encoding="utf-8", newline="")


def billing_pay(invoice: Number, home: Home = None) -> None:
    """Note that an invoice was paid.

    Example: menagerie billing pay INV2026-000017
    """
    with deciding("billing pay", home) as services:
        from menagerie import invoice_books  # noqa: PLC0415 -- as above

        told = invoice_books.pay(services, invoice)
    typer.echo(told)


def billing_void(
    invoice: Number,
    reason: Annotated[str, typer.Option(help="Why; kept with the invoice.")],
    home: Home = None,
) -> None:
    """Void an invoice that is not paid. The credits that it used are given back.

    Example: menagerie billing void INV2026-000017 --reason "billed to the wrong company"
    """
    with deciding("billing void", home) as services:
        from menagerie import invoice_books  # noqa: PLC0415 -- as above

        told = invoice_books.void(services, invoice, reason)
    typer.echo(told)


def billing_customer(
    org: Annotated[str, typer.Argument(metavar="ORG", help="Id of the organization.")],
    name: Annotated[str | None, typer.Option(help="Name on invoices.")] = None,
    street: Annotated[str | None, typer.Option(help="Street and number.")] = None,
    postcode: Annotated[str | None, typer.Option()] = None,
    city: Annotated[str | None, typer.Option()] = None,
    country: Annotated[str | None, typer.Option(help="As in ISO 3166, such as DE.")] = None,
    vat_id: Annotated[str | None, typer.Option(help="VAT ID; within the EU it is checked.")] = None,
    email: Annotated[str | None, typer.Option(help="Where invoices are sent.")] = None,
    home: Home = None,
) -> None:
    """Say how an organization is named on its next invoices, and where they are sent.

    What is left out keeps its value. Without a country, that of the issuer is taken.

    Example: menagerie billing customer org_01JD7QK3V8Y2M4N6P8R0S2T4V6 --name "Analytical Engines"
    """
    given = {"name": name, "street": street, "postcode": postcode, "city": city}
    given |= {"country": country, "vat_id": vat_id, "email": email}
    with deciding("billing customer", home) as services:
        from menagerie import invoice_books  # noqa: PLC0415 -- as above

        chosen = {key: value for key, value in given.items() if value is not None}
        told = invoice_books.set_customer(services, org, chosen)
    typer.echo(told)


COMMANDS: dict[str, Callable[..., None]] = {
    "billing run": billing_run,
    "billing show": billing_show,
    "billing export": billing_export,
    "billing pay": billing_pay,
    "billing void": billing_void,
    "billing customer": billing_customer,
}
