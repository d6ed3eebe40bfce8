"""The operator's commands for what is metered and billed: correct, check, sum up, preview."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import typer

from clients.cli.output import OutputOption, Rows
from menagerie.credit_commands import Home, deciding


def billing_correct(
    subject: Annotated[
        str,
        typer.Argument(metavar="INSTANCE", help="Id of the instance; for seats, of the org."),
    ],
    meter: Annotated[
        str, typer.Argument(metavar="METER", help="backups, egress, domains or seats.")
    ],
    hour: Annotated[
        str, typer.Argument(metavar="HOUR", help="A full hour in UTC, as 2026-11-03T14:00Z.")
    ],
    quantity: Annotated[
        str,
        typer.Argument(
            metavar="QUANTITY",
            help="What was really used in that hour: bytes, or the number of domains or seats.",
        ),
    ],
    reason: Annotated[str, typer.Option(help="Why; it is kept with the correction.")],
    home: Home = None,
) -> None:
    """Correct what was metered in an hour, by an entry that is added; nothing is overwritten.

    Until a day after a month has ended, the correction counts in its hour. Later, the difference
    counts in the current month, at the prices of that hour, and is a line of its own on the next
    invoice. Safe to repeat: QUANTITY is the new value of the hour, not a difference.

    Examples:

      menagerie billing correct inst_01JD7QK3V8Y2M4N6P8R0S2T4V6 egress 2026-11-03T14:00Z 0
      --reason "a load test of ours"

      menagerie billing correct org_01JD7QK3V8Y2M4N6P8R0S2T4V6 seats 2026-11-03T14:00Z 4
      --reason "two were invited by mistake"
    """
    with deciding("billing correct", home) as services:
        from menagerie import meter_corrections  # noqa: PLC0415 -- keeps --help quick

        told = meter_corrections.correct(services, subject, meter, hour, quantity, reason=reason)
    typer.echo(told)


Month = Annotated[
    str | None,
    typer.Option(metavar="MONTH", help="A month such as 2026-11."),
]


def billing_check(month: Month = None, home: Home = None, output: OutputOption = None) -> None:
    """Compare what was counted, what was metered and what was billed, and list the differences.

    As the worker does every night. Without --month it is this month and the one before it. Exit
    status: 0 without differences, 1 with any. Needs no running service, but to ask its cells.

    Example: menagerie billing check --month 2026-11 --output json
    """
    from clients.cli.output import Format, chosen, show  # noqa: PLC0415 -- keeps --help quick

    with deciding("billing check", home) as services:
        from menagerie import bill_checks  # noqa: PLC0415 -- as above

        told = bill_checks.check(services, month)
    found = told.differences
    if chosen(output) is Format.table:
        found = [_with_organization(each) for each in found]
    show({"items": found, "next_cursor": None}, output)
    typer.echo(told.summary, err=True)
    if told.differences:
        raise typer.Exit(1)


def billing_revenue(
    since: Annotated[
        str | None,
        typer.Option("--from", metavar="MONTH", help="First month. Default: a year in all."),
    ] = None,
    until: Annotated[
        str | None,
        typer.Option("--to", metavar="MONTH", help="Last month. Default: the last one that ended."),
    ] = None,
    home: Home = None,
    output: Annotated[
        Rows | None,
        typer.Option(
            "--output",
            "-o",
            help="Output format. Default: table. json and csv have a sum for each metric too.",
            show_default=False,
        ),
    ] = None,
) -> None:
    """Sum up invoices by month: what was charged, credits, taxes, and what is paid and open.

    All amounts are in cents, and add up to those of the journal (billing export). Void invoices are
    left out.

    Examples:

      menagerie billing revenue --from 2026-01 --to 2026-12

      menagerie billing revenue --output csv > revenue.csv
    """
    from clients.cli.output import Format, chosen_rows, show  # noqa: PLC0415 -- as above

    form = chosen_rows(output)
    with deciding("billing revenue", home) as services:
        from menagerie import revenue_reports  # noqa: PLC0415 -- as above

        rows = revenue_reports.by_month(services, since, until)
        if form is Rows.csv:
            typer.echo(revenue_reports.as_csv(rows), nl=False)
            return
        shown = revenue_reports.SHOWN
    if form is Rows.table:
        rows = [{name: row[name] for name in shown} for row in rows]
    show({"items": rows, "next_cursor": None}, Format(form.value))


def billing_preview(
    prices: Annotated[
        Path, typer.Argument(metavar="PRICES", help="A price list (TOML), as for price_list.")
    ],
    month: Month = None,
    home: Home = None,
    output: OutputOption = None,
) -> None:
    """Show what a month would have cost at other prices: by organization, and in sum.

    The list of the file that begins last is used for the whole month. Amounts are in cents, before
    credits and taxes, as the subtotals of invoices are. Nothing is changed. Without --month it is
    the last month that ended.

    Example: menagerie billing preview prices-2027.toml --month 2026-11
    """
    from clients.cli.output import Format, chosen, show  # noqa: PLC0415 -- as above

    with deciding("billing preview", home) as services:
        from menagerie import revenue_reports  # noqa: PLC0415 -- as above

        told = revenue_reports.preview(services, prices, month)
    if chosen(output) is Format.table:
        sums = {name: told[name] for name in ("old_cents", "new_cents", "difference_cents")}
        rows = [*told["items"], {"org_id": "all", **sums}]
        told["items"] = [_with_organization(each) for each in rows]
    show(told, output)


def _with_organization(row: dict[str, Any]) -> dict[str, Any]:
    """Tables leave the `org_id` out, as it is else the one that was asked for."""
    return {"organization" if name == "org_id" else name: row[name] for name in row}


COMMANDS: dict[str, Callable[..., None]] = {
    "billing correct": billing_correct,
    "billing check": billing_check,
    "billing revenue": billing_revenue,
    "billing preview": billing_preview,
}
