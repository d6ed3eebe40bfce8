"""The letters about money, as plain text."""

from control.mail.letters import Letter, quotable
from control.policy.prices import CURRENCY


def amount(cents: int) -> str:
    """As in: 1,234.50 USD."""
    sign, whole = ("-" if cents < 0 else ""), abs(cents)
    return f"{sign}{whole // 100:,}.{whole % 100:02} {CURRENCY}"


def programme_decided(
    *, to: str, org: str, programme: str, cents: int, note: str | None, base_url: str
) -> Letter:
    """Without cents it was declined."""
    org = quotable(org)
    if cents:
        decision, text = "approved", f"{amount(cents)} of credit were granted. Invoices use them"
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
