"""The letters about money, as plain text."""

from control.mail.letters import Letter, quotable


def programme_decided(
    *, to: str, org: str, programme: str, credit: str | None, note: str | None, base_url: str
) -> Letter:
    """Without a credit it was declined."""
    org = quotable(org)
    if credit:
        decision, text = "approved", f"A credit of {credit} was granted. Invoices use it"
        text += " first. See what is left:\n\n    menagerie credits list"
    else:
        decision, text = "declined", f"The operator of the service says:\n\n    {note or ''}"
        text += "\n\nYou can apply again after 30 days."
    return Letter(
        to=to,
        subject=f'The application of "{org}" for credit was {decision}',
        text=f"""\
Your application for the credit program {programme}, for the organization "{org}" on the
database service at
{base_url}
was {decision}.

{text}
""",
    )


def credit_note_finalized(
    *,
    to: str,
    org: str,
    number: str,
    corrects: str,
    reason: str,
    told: str,
    link: str,
    base_url: str,
) -> Letter:
    """`told` says how much it is, and what becomes of that."""
    org = quotable(org)
    return Letter(
        to=to,
        subject=f'Credit note {number} for "{org}"',
        text=f"""\
The credit note {number} corrects the invoice {corrects} for the organization "{org}" on the
database service at
{base_url}
{told}

The operator of the service says why:

    {reason}

See it, and download it as PDF. Whoever has this link can do so for 30 days:

    {link}
""",
    )


def invoice_finalized(
    *,
    to: str,
    org: str,
    number: str,
    month: str,
    total: str,
    due: str | None,
    link: str,
    base_url: str,
) -> Letter:
    """Without `due` nothing is to be paid."""
    org = quotable(org)
    total = f"Its total is {total}, to be paid until {due}" if due else "Nothing is to be paid"
    return Letter(
        to=to,
        subject=f'Invoice {number} for "{org}"',
        text=f"""\
The invoice {number} for the organization "{org}" in {month}, on the database service at
{base_url}
is ready. {total}.

See it, and download it as PDF. Whoever has this link can do so for 30 days:

    {link}

Members who can see the bills find all invoices with:

    menagerie invoices list
""",
    )
