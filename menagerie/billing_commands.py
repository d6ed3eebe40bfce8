"""The operator's commands for invoices: make, look at, export and correct them, note payments."""

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
    """Note that an invoice was paid, or a credit note paid back.

    Example: menagerie billing pay INV2026-000017
    """
    with deciding("billing pay", home) as services:
        from menagerie import invoice_books  # noqa: PLC0415 -- as above

        told = invoice_books.pay(services, invoice)
    typer.echo(told)


def billing_collect(invoice: Number, home: Home = None) -> None:
    """Collect an open invoice with the payment provider, where that was given up or not begun.

    Safe to repeat: it is asked for once.

    Example: menagerie billing collect INV2026-000017
    """
    with deciding("billing collect", home) as services:
        from menagerie import invoice_books  # noqa: PLC0415 -- as above

        told = invoice_books.collect(services, invoice)
    typer.echo(told)


def billing_void(
    invoice: Number,
    reason: Annotated[str, typer.Option(help="Why; the customer reads it.")],
    home: Home = None,
) -> None:
    """Replace an invoice that is not paid: credit all of it, and invoice its month again.

    The new invoice names the customer as it is described now (menagerie billing customer).
    Whoever is not to pay for the month at all gets a credit note only.

    Example: menagerie billing void INV2026-000017 --reason "billed to the wrong company"
    """
    with deciding("billing void", home) as services:
        from menagerie import credit_notes  # noqa: PLC0415 -- as above

        told = credit_notes.void(services, invoice, reason)
    typer.echo(told)


def billing_credit_note(
    invoice: Number,
    reason: Annotated[str, typer.Option(help="Why; the customer reads it.")],
    line: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NUMBER[=AMOUNT]",
            help="A line of the invoice, counted from 1, and how much of it. Can be repeated.",
        ),
    ] = None,
    amount: Annotated[
        str | None,
        typer.Option(metavar="AMOUNT", help="How much of the invoice, spread over its lines."),
    ] = None,
    home: Home = None,
) -> None:
    """Correct an invoice with a credit note. Amounts are before tax, which is reversed too.

    Without --line and --amount, all that is left of the invoice is credited.

    Example: menagerie billing credit-note INV2026-000017 --line 2=12.50 --reason "the outage"
    """
    with deciding("billing credit-note", home) as services:
        from menagerie import credit_notes  # noqa: PLC0415 -- as above

        told = credit_notes.credit(services, invoice, line or [], amount, reason)
    typer.echo(told)


def billing_reissue(invoice: Number, home: Home = None) -> None:
    """Invoice a month again, once all of its invoice is credited.

    Example: menagerie billing reissue INV2026-000017
    """
    with deciding("billing reissue", home) as services:
        from menagerie import credit_notes  # noqa: PLC0415 -- as above

        told = credit_notes.reissue(services, invoice)
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
    "billing collect": billing_collect,
    "billing void": billing_void,
    "billing credit-note": billing_credit_note,
    "billing reissue": billing_reissue,
    "billing customer": billing_customer,
}
