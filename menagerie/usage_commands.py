"""The operator's commands for what is metered and billed: correct, check, sum up, preview."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated

import typer

from clients.cli.output import OutputOption
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
    from clients.cli.output import show  # noqa: PLC0415 -- keeps --help quick

    with deciding("billing check", home) as services:
        from menagerie import bill_checks  # noqa: PLC0415 -- as above

        told = bill_checks.check(services, month)
    show({"items": told.differences, "next_cursor": None}, output)
    typer.echo(told.summary, err=True)
    if told.differences:
        raise typer.Exit(1)


COMMANDS: dict[str, Callable[..., None]] = {
    "billing correct": billing_correct,
    "billing check": billing_check,
}
